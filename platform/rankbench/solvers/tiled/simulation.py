"""The inverse by tiles on paper: the driver of `flow.py` with a simulated pool, and slots and data without contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankbench.fitting.flow import Flow
from rankbench.fitting.simulated_pool import Hardware, SimulatedPool
from rankbench.solvers.tiled.flow import cluster_tile, invert_on, spare_panels
from rankbench.solvers.tiled.grid import Grid
from rankbench.solvers.tiled.store import Slots, slots_of

# Of the eleven cases of docs/results/scale.md that `benchmarks/inverse_scale.py` measured.
BELOW = (-0.18, 0.24)  # least and largest share of the measured seconds that the simulated ones were below them
ERROR = "on 1 to 4 hosts, simulated times were 24 % below to 18 % above measured ones, 12 % off in the median"


@dataclass(frozen=True)
class PaperGram:
    """What a simulation needs to know of a `ShiftedGram`: the pairs that it counts, and the bytes that each node gets."""

    pairs: float
    n_bytes: float


@dataclass(frozen=True)
class Prediction:
    """Seconds of the whole inverse, and of its `arithmetic` alone on all processors; bytes `sent` over the wire in all, and the
    most that a node `held`; number of tasks, and rows of a tile.
    """

    n: int
    tile: int
    seconds: float
    arithmetic: float
    sent: float
    held: float
    tasks: int
    error = ERROR  # how far simulations of this kind were from what was measured

    @property
    def efficiency(self) -> float:
        return self.arithmetic / self.seconds

    @property
    def expected(self) -> tuple[float, float]:
        """Range of seconds, if the simulator errs as it did in the measured cases."""
        least, largest = BELOW
        return self.seconds / (1 - least), self.seconds / (1 - largest)


def simulate(
    n: int,
    hardware: Hardware,
    pairs: float = 0.0,
    data: float = 0.0,
    dtype: type = np.float32,
    tile: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Prediction:
    """Play the inverse of n items on `hardware`, for data of `data` bytes with `pairs` pairs to count.

    Raises StorageError if a node cannot hold its tiles.
    """
    pool = SimulatedPool(hardware)
    flow = Flow(pool)
    grid = Grid(n, min(n, tile or cluster_tile(n, flow.workers, pool.threads)), np.dtype(dtype))
    slots = Slots(Path(), grid, slots_of(grid, spare_panels(grid.n_blocks)))
    invert_on(flow, slots, PaperGram(pairs, data), progress)
    arithmetic = pool.flops / (hardware.nodes * hardware.cores * hardware.rate * hardware.speed)
    held = max(node.peak for node in pool.nodes)
    return Prediction(n, grid.tile, pool.now, arithmetic, pool.sent, held, flow.n_tasks)
