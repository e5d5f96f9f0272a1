"""The functions that the inverse by tiles gives to a flow: they make, change, read or write tiles and tell their cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rankbench.fitting.simulated_pool import Cost
from rankbench.solvers.inverse.linalg import NotPositiveDefinite
from rankbench.solvers.tiled.graph import Task, Tile, flops
from rankbench.solvers.tiled.grid import Grid
from rankbench.solvers.tiled.kernels import BLOCK, KERNELS
from rankbench.solvers.tiled.store import read_tile, write_tile

if TYPE_CHECKING:
    from rankbench.solvers.tiled.gram import ShiftedGram

TOGETHER = 4  # tiles of the Gram that one task counts
# Seconds per operation, relative to a product of tiles: medians of tiles of 750 and 1,875 rows on one thread.
SLOWER = {
    "cholesky": 1.7, "invert": 2.2, "square_t": 1.4, "divide_t": 1.6, "subtract_square": 2.0, "add_square_t": 1.5,
    "subtract_product_t": 1.2, "multiply_left_minus": 1.1, "multiply_left_t": 1.1, "multiply_right": 1.1,
}  # fmt: skip
# Their blocks depend on each other, so that only some of the work is parallel.
_IN_TURN = ("cholesky", "invert", "square_t")


@dataclass(frozen=True)
class Change:
    """A kernel on a tile. Raises NotPositiveDefinite, with the row in the matrix; `first` is that of the tile."""

    op: str
    first: int
    flops: float
    parts: int

    @classmethod
    def of(cls, task: Task, grid: Grid) -> Change:
        parts = -(-grid.side(task.out[1]) // BLOCK)
        return cls(
            task.op, task.out[0] * grid.tile, flops(task, grid.side), max(1, parts // 2 if task.op in _IN_TURN else parts)
        )

    def __call__(self, array: np.ndarray, *others: np.ndarray) -> None:
        try:
            KERNELS[self.op](array, *others)
        except NotPositiveDefinite as error:
            raise NotPositiveDefinite(self.first + error.row) from None

    def cost(self) -> Cost:
        return Cost(self.flops, SLOWER.get(self.op, 1.0) * self.flops, self.parts)


@dataclass(frozen=True)
class Count:
    """The tiles of `rows` in block column k of the shifted Gram."""

    k: int
    rows: tuple[int, ...]
    grid: Grid

    def __call__(self, gram: ShiftedGram) -> list[np.ndarray]:
        panel = np.empty((len(self.rows), self.grid.tile**2), self.grid.dtype)
        workspace = np.empty(max(4 * self.grid.tile_bytes, gram.least_workspace), np.uint8)
        gram.column(self.k, self.grid, panel, workspace, self.rows)
        return [self.grid.view(buffer, (i, self.k)) for i, buffer in zip(self.rows, panel, strict=True)]

    def cost(self, gram: ShiftedGram) -> Cost:
        pairs = gram.pairs * len(self.rows) / self.grid.n_tiles
        return Cost(parts=self.grid.tile, pairs=pairs, array=self.grid.tile_bytes)


@dataclass(frozen=True)
class Read:
    """A tile from the file."""

    folder: Path
    slot: int
    tile: Tile
    grid: Grid

    def __call__(self) -> list[np.ndarray]:
        return [read_tile(self.folder, self.slot, self.grid, self.tile)]

    def cost(self) -> Cost:
        return Cost(disk=self.grid.tile_bytes, array=self.grid.tile_bytes)


@dataclass(frozen=True)
class Write:
    """A tile to the file, if `writer` still writes it."""

    folder: Path
    slot: int
    grid: Grid
    writer: str

    def __call__(self, array: np.ndarray) -> None:
        write_tile(array, self.folder, self.slot, self.grid, self.writer)

    def cost(self) -> Cost:
        return Cost(disk=self.grid.tile_bytes)
