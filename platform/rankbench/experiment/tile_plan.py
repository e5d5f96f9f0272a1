"""What a closed form would take on a cluster that is only described, as by `64x16x128GB@10`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from rankbench.core.errors import ConfigError, StorageError, require
from rankbench.core.memory import bytes_of
from rankbench.experiment.estimate import PAIRS, PRODUCTS, Size, products_a_second
from rankbench.experiment.job import MethodConfig
from rankbench.fitting.method import ClosedForm
from rankbench.fitting.simulated_pool import Hardware
from rankbench.solvers.tiled.simulation import Prediction, simulate

SOURCE = "--nodes"
MOST_NODES, MOST_ITEMS = 1024, 2_000_000  # what a simulation of minutes can play


def hardware_of(text: str, dtype: str) -> Hardware:
    """Read NODESxCORESxMEMORY@GIGABITS; a processor is as fast in matrix products as one of this machine.

    Raises ConfigError for any other text.
    """
    match = re.fullmatch(r"(\d+)x(\d+)x([^@x]+)@(\d+(?:\.\d+)?)", text.strip(), re.IGNORECASE)
    require(match is not None, f"{SOURCE}: expected NODESxCORESxMEMORY@GIGABITS such as 16x16x128GB@10, got {text!r}")
    assert match is not None
    nodes, cores, gigabits = int(match[1]), int(match[2]), float(match[4])
    require(1 <= nodes <= MOST_NODES, f"{SOURCE}: from 1 to {MOST_NODES:,} nodes can be simulated, got {nodes:,}")
    require(cores >= 1 and gigabits > 0, f"{SOURCE}: each node needs a processor and a line faster than 0 Gbit/s, got {text!r}")
    memory = bytes_of(match[3], SOURCE)
    return Hardware(nodes, cores, memory, gigabits, PRODUCTS * products_a_second(dtype), pairs=PAIRS)


def require_tiles(config: MethodConfig) -> None:
    """Raise ConfigError unless the method is a closed form, which a cluster solves by tiles."""
    require(
        isinstance(config.spec, ClosedForm),
        f"{SOURCE}: only closed forms are planned on nodes, and {config.spec.name} is none; leave out --dry-run and {SOURCE}",
    )


def plan(
    size: Size, dtype: str, hardware: Hardware, progress: Callable[[int, int], None] = lambda done, total: None
) -> Prediction:
    """Simulate the inverse for data of this size. Raises ConfigError, with what would do, if the nodes cannot do it."""
    n, itemsize = size.items, np.dtype(dtype).itemsize
    require(n <= MOST_ITEMS, f"{SOURCE}: at most {MOST_ITEMS:,} items can be simulated, the data have {n:,}")
    require(n > 0, "the data have no items")
    data = 8.0 * size.interactions + 8.0 * size.users
    room = hardware.store * hardware.memory
    where = f"{SOURCE}: {n:,} items on {hardware.nodes:,} nodes of {hardware.memory / 1e9:g} GB cannot work"
    require(
        data < room,
        f"{where}: the interactions take {data / 1e9:.1f} GB on each node, whose object store has {room / 1e9:.1f} GB",
    )
    tiles = itemsize * n * (n + 1) / 2 / hardware.nodes
    if tiles + data > room:
        least = int((tiles + data) / hardware.store / 1e9) + 1
        raise ConfigError(
            f"{where}: the tiles take {tiles / 1e9:.3g} GB on each node, whose object store has {room / 1e9:.3g} GB "
            f"({100 * hardware.store:.0f} % of the memory); give more nodes, or nodes of {least:,} GB"
        )
    try:
        return simulate(n, hardware, size.pairs / 2, data, np.dtype(dtype).type, progress=progress)
    except StorageError as error:
        raise ConfigError(f"{where}: {error}") from None
