"""The inverse by tiles on a cluster: the tasks of `graph.py` in the order of their reads, and a file of finished panels.

Tiles stay in the memory of the nodes that compute them (`Placement`), as far as it suffices. Every finished panel is also
written to the file, which all nodes must see, so the loss of a node costs only unfinished panels. The driver looks ahead: it
submits later panels while earlier ones are computed and written, and the flow computes what is ready, the earliest panel first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isqrt, sqrt
from typing import Any

from rankbench.core.errors import ClusterError
from rankbench.fitting.flow import Flow, Lost
from rankbench.solvers.inverse.linalg import NotPositiveDefinite
from rankbench.solvers.tiled.graph import CHOLESKY, Panel, Tile, panels
from rankbench.solvers.tiled.grid import SMALLEST
from rankbench.solvers.tiled.kernels import BLOCK
from rankbench.solvers.tiled.operations import TOGETHER, Change, Count, Read, Write
from rankbench.solvers.tiled.store import Slots

LOSSES = 5  # consecutive losses of tiles without a finished panel, after which the fit fails
SHARE = 0.5  # fraction of the flow's memory for finished tiles; the rest is for tiles in work
BLOCKS = 6  # blocks for one worker; their number grows with the square root of the workers
MOST_BLOCKS = 128  # beyond, a driver could not keep up
LARGEST = 8192  # rows per tile


@dataclass(frozen=True)
class Placement:
    """Tiles on `nodes` equal nodes, numbered from 0, block-cyclic over the grid of nodes that is closest to a square.

    Node (r, c) of an R x C grid has the tiles whose row is r modulo R and whose column is c modulo C. A task on tile (i, k)
    reads tiles of row i and of row or column k, so a tile is needed by a row and a column of the grid, R + C − 1 of R · C,
    and each node has its share of all panels together.
    """

    nodes: int

    @property
    def rows(self) -> int:
        return next(r for r in range(isqrt(self.nodes), 0, -1) if self.nodes % r == 0)

    @property
    def columns(self) -> int:
        return self.nodes // self.rows

    def node(self, tile: Tile) -> int:
        return tile[0] % self.rows * self.columns + tile[1] % self.columns

    def by_node(self, tiles: Iterable[Tile]) -> dict[int, list[Tile]]:
        """The tiles of each node that has some."""
        found: dict[int, list[Tile]] = {}
        for tile in tiles:
            found.setdefault(self.node(tile), []).append(tile)
        return found


def cluster_tile(n: int, workers: int, threads: int = 1) -> int:
    """Rows per tile for `workers` tasks at a time of `threads` threads each.

    There are enough tiles that each worker has one that can be changed, and so few that the driver can hand out all tasks.
    Kernels give each thread blocks of BLOCK columns, so larger tiles have whole rounds of them.
    """
    blocks = max(8, min(round(BLOCKS * sqrt(workers)), MOST_BLOCKS), -(-n // LARGEST))
    tile = -(-n // min(blocks, -(-n // SMALLEST)))
    whole = BLOCK * threads
    return max(1, round(tile / whole)) * whole if threads > 1 and 2 * tile >= whole and n > 4 * whole else tile


def spare_panels(n_blocks: int) -> int:
    """Number of panels of the largest size that may be in work at a time. Their slots in the file take half of the matrix's."""
    return max(1, n_blocks // 4)


def invert_on(flow: Flow, store: Slots, gram: Any, progress: Callable[[int, int], None]) -> None:
    """Finish the panels of `store`, whose folder every worker must see. `gram` is a `ShiftedGram`.

    Raises ClusterError if arrays are lost repeatedly, NotPositiveDefinite, and StorageError if the disk fails.
    """
    data, losses = flow.pool.put(gram), 0
    while store.finished < len(panels(store.grid.n_blocks)):
        before = store.finished
        try:
            _Run(flow, store, data, progress).go_on()
        except Lost as lost:
            flow.clear()
            store.release()
            losses = 1 if store.finished > before else losses + 1
            if losses >= LOSSES:
                raise ClusterError(f"tiles were lost {losses} times in one panel ({lost}); --resume continues") from None
        except NotPositiveDefinite:
            flow.clear()
            raise
    flow.clear()


@dataclass(frozen=True)
class _Submitted:
    """A panel that is computed and written to `slots`; it is finished when all `tickets` are done."""

    panel: Panel
    slots: dict[Tile, int]
    tickets: Sequence[Any]


class _Run:
    """One attempt at all unfinished panels, which ends if tiles are lost. `kept` are the finished tiles that stay in the flow,
    and `here` all tiles in it.
    """

    def __init__(self, flow: Flow, store: Slots, data: Any, progress: Callable[[int, int], None]):
        self.flow, self.store, self.data, self.progress = flow, store, data, progress
        self.placement = Placement(flow.nodes)
        self.kept: set[Tile] = set()
        self.most = int(SHARE * flow.pool.room / store.grid.tile_bytes)
        # If the flow cannot hold the whole matrix, only one panel is computed while another is written.
        self.ahead = 3 * store.grid.n_blocks if self.most >= store.grid.n_tiles else 1
        self.here: set[Tile] = set()
        self.submitted: deque[_Submitted] = deque()

    def go_on(self) -> None:
        grid, store = self.store.grid, self.store
        every = panels(grid.n_blocks)
        self.done = sum(panel.flops(grid.side) for panel in every[: store.finished])
        for panel in every[store.finished :]:
            while len(self.submitted) > self.ahead or not store.can_reserve(len(panel.tiles)):
                self._finish()
            self._submit(panel)
            while self.submitted and self.flow.done(self.submitted[0].tickets):
                self._finish()
        while self.submitted:
            self._finish()

    def _submit(self, panel: Panel) -> None:
        grid, flow, own = self.store.grid, self.flow, set(panel.tiles)
        if panel.phase == CHOLESKY:
            self._count(panel)
        else:
            self._bring(panel.tiles)
        for task in panel.tasks():
            self._bring(tile for tile in task.reads if tile not in own)
            flow.change(task.out, Change.of(task, grid), task.reads)
        slots = self.store.reserve(panel.tiles)
        tickets = [flow.use(tile, Write(self.store.folder, slot, grid, self.store.writer)) for tile, slot in slots.items()]
        self.submitted.append(_Submitted(panel, slots, tickets))
        self._drop_read()

    def _count(self, panel: Panel) -> None:
        """Make the tiles of a block column of the shifted Gram, each on its node."""
        for node, tiles in self.placement.by_node(panel.tiles).items():
            for first in range(0, len(tiles), TOGETHER):
                some = tiles[first : first + TOGETHER]
                self.flow.make(some, Count(panel.k, tuple(i for i, _ in some), self.store.grid), self.data, node=node)
        self.here |= set(panel.tiles)

    def _bring(self, tiles: Iterable[Tile]) -> None:
        for tile in tiles:
            if tile not in self.here:
                store = self.store
                read = Read(store.folder, store.slot(tile), tile, store.grid)
                self.flow.make([tile], read, node=self.placement.node(tile))
                self.here.add(tile)

    def _drop_read(self) -> None:
        """Drop the tiles that were only read; those of submitted panels stay until they are written."""
        unused = self.here - self.kept
        for each in self.submitted:
            unused -= each.slots.keys()
        self.flow.forget(unused)
        self.here -= unused

    def _finish(self) -> None:
        """Wait until the oldest submitted panel is written, and count it as finished."""
        panel, slots = self.submitted[0].panel, self.submitted[0].slots
        self.flow.wait(self.submitted[0].tickets)
        self.store.commit(slots)
        self.submitted.popleft()
        new = [tile for tile in slots if tile not in self.kept]
        self.kept |= set(new[: max(0, self.most - len(self.kept))])
        self._drop_read()
        self.done += panel.flops(self.store.grid.side)
        self.progress(round(self.done), self.store.grid.n**3)
