"""The inverse by tiles on a cluster: the tasks of `graph.py` in the order of their reads, and a file of finished panels.

Tiles stay in the memory of the hosts that computed them, as far as it suffices. Every finished panel is also written to the
file, which all hosts must see, so the loss of a host costs only unfinished panels. Panels overlap: tasks of the next panel are
submitted while the last tiles of the current panel are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from rankbench.core.errors import ClusterError
from rankbench.fitting.executors import Flow, Lost
from rankbench.solvers.inverse.linalg import not_positive_definite
from rankbench.solvers.tiled.gram import ShiftedGram
from rankbench.solvers.tiled.graph import CHOLESKY, Panel, Tile, flops, panels
from rankbench.solvers.tiled.grid import SMALLEST, Grid
from rankbench.solvers.tiled.kernels import KERNELS, NotPositiveDefinite
from rankbench.solvers.tiled.store import TileFile, read_tile, write_tile

LOSSES = 5  # consecutive losses of tiles without a finished panel, after which the fit fails
SHARE = 0.5  # fraction of the flow's memory for finished tiles; the rest is for tiles in work


def cluster_tile(n: int, workers: int) -> int:
    """Rows per tile: few enough that a panel has a tile for every worker, many enough that transfers do not dominate.

    Beyond 32 blocks, transfers cost more than further workers gain.
    """
    blocks = min(-(-n // SMALLEST), max(-(-n // 4096), min(2 * workers, 32), 8))
    return -(-n // max(1, blocks))


def invert_on(flow: Flow, store: TileFile, gram: ShiftedGram, progress: Callable[[int, int], None]) -> None:
    """Finish the panels of `store`, whose folder every worker must see.

    Raises ClusterError if arrays are lost repeatedly, NumericalError if the matrix is not positive definite, and StorageError
    if the disk fails.
    """
    data, losses = flow.put(gram), 0
    while store.finished < len(panels(store.grid.n_blocks)):
        before = store.finished
        try:
            _Run(flow, store, data, progress).go_on()
        except Lost as lost:
            flow.clear()
            losses = 1 if store.finished > before else losses + 1
            if losses >= LOSSES:
                raise ClusterError(f"tiles were lost {losses} times in one panel ({lost}); --resume continues") from None
        except NotPositiveDefinite as error:
            flow.clear()
            raise not_positive_definite(error.row, store.grid.n, store.grid.dtype) from None
    flow.clear()


class _Run:
    """One attempt at all unfinished panels, which ends if tiles are lost. `kept` are the finished tiles in the flow."""

    def __init__(self, flow: Flow, store: TileFile, data: Any, progress: Callable[[int, int], None]):
        self.flow, self.store, self.data, self.progress = flow, store, data, progress
        self.kept: set[Tile] = set()
        self.most = int(SHARE * flow.room / store.grid.tile_bytes)
        self.here: set[Tile] = set()
        self.writing: tuple[Panel, dict[Tile, int], list[Any]] | None = None

    def go_on(self) -> None:
        grid, store, flow = self.store.grid, self.store, self.flow
        every = panels(grid.n_blocks)
        self.done = sum(flops(task, grid.side) for panel in every[: store.finished] for task in panel.tasks())
        for panel in every[store.finished :]:
            own = set(panel.tiles)
            if panel.phase == CHOLESKY:
                flow.make(panel.tiles, gram_tiles, self.data, panel.k, grid)
                self.here |= own
            else:
                self._bring(panel.tiles)
            for task in panel.tasks():
                self._bring(tile for tile in task.reads if tile not in own)
                function = partial(_cholesky, panel.k * grid.tile) if task.op == "cholesky" else KERNELS[task.op]
                flow.change(task.out, function, task.reads)
            self._finish()
            slots = store.reserve(panel.tiles)
            tickets = [flow.use(tile, write_tile, store.folder, slot, grid) for tile, slot in slots.items()]
            self.writing = (panel, slots, tickets)
            # Drop tiles that only this panel read; its own tiles stay until they are written.
            unused = self.here - self.kept - own
            flow.forget(unused)
            self.here -= unused
        self._finish()

    def _bring(self, tiles: Iterable[Tile]) -> None:
        for tile in tiles:
            if tile not in self.here:
                store = self.store
                self.flow.make([tile], _read, store.folder, store.slot(tile), store.grid, tile)
                self.here.add(tile)

    def _finish(self) -> None:
        """Wait until the current panel is written, and count it as finished."""
        if self.writing is None:
            return
        panel, slots, tickets = self.writing
        self.flow.wait(tickets)
        self.store.commit(slots)
        self.writing = None
        new = [tile for tile in slots if tile not in self.kept]
        self.kept |= set(new[: max(0, self.most - len(self.kept))])
        self.done += sum(flops(task, self.store.grid.side) for task in panel.tasks())
        self.progress(round(self.done), self.store.grid.n**3)


def _cholesky(first: int, A: np.ndarray) -> None:
    """The Cholesky kernel, which reports a failing row in the whole matrix, because the driver does not know the panel."""
    try:
        KERNELS["cholesky"](A)
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(first + error.row) from None


def gram_tiles(gram: ShiftedGram, k: int, grid: Grid) -> list[np.ndarray]:
    """Block column k of the shifted Gram, from the diagonal down."""
    below = range(k, grid.n_blocks)
    panel = np.empty((len(below), grid.tile**2), grid.dtype)
    gram.column(k, grid, panel, np.empty(max(4 * grid.tile_bytes, gram.least_workspace), np.uint8))
    return [grid.view(buffer, (i, k)) for i, buffer in zip(below, panel, strict=True)]


def _read(*arguments: Any) -> list[np.ndarray]:
    return [read_tile(*arguments)]
