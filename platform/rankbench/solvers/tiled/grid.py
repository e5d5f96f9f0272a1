"""The division of an (n, n) matrix into tiles, and their largest size in a given memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.errors import StorageError
from rankbench.solvers.tiled.graph import HELD, Tile

STREAM = HELD + 1  # tile buffers beside the panel: those that a task reads, and the next one, which is being filled
LAPACK_ORDER = 16_384  # largest n for LAPACK, whose potrf crashes in common builds near n = 41,000 (20,000 is known to work)
SMALLEST = 512  # rows per tile; with fewer rows, reading takes longer than the products
RESERVE = 8 << 20  # bytes for arrays of counts and the lists of tiles


@dataclass(frozen=True)
class Grid:
    """n rows in blocks of `tile` rows, of which the last may be shorter. A tile is a column-major array (side(i), side(j))."""

    n: int
    tile: int
    dtype: np.dtype

    @property
    def n_blocks(self) -> int:
        return -(-self.n // self.tile)

    @property
    def n_tiles(self) -> int:
        return self.n_blocks * (self.n_blocks + 1) // 2

    @property
    def tile_bytes(self) -> int:
        return self.tile**2 * self.dtype.itemsize

    def side(self, block: int) -> int:
        return min(self.tile, self.n - block * self.tile)

    def view(self, buffer: np.ndarray, tile: Tile) -> np.ndarray:
        """`buffer` (tile²,) as the array of a tile."""
        height, width = self.side(tile[0]), self.side(tile[1])
        return buffer[: height * width].reshape((height, width), order="F")

    def memory(self, least_workspace: int) -> int:
        """Bytes that the inverse needs: a panel, and the larger of the stream's buffers and the workspace of the Gram."""
        return self.n_blocks * self.tile_bytes + max(STREAM * self.tile_bytes, least_workspace) + RESERVE


def choose_grid(n: int, dtype: np.dtype, memory: int, least_workspace: int, tile: int | None = None) -> Grid:
    """Choose the fewest blocks whose inverse fits into `memory` bytes, or blocks of `tile` rows.

    Larger tiles reduce reading, which is n³/(2 tile) numbers. Raises StorageError, which states the memory that would suffice.
    """
    if tile is not None:
        grid = Grid(n, min(tile, n), dtype)
        if grid.memory(least_workspace) > memory:
            raise _too_little(grid, memory, least_workspace)
        return grid
    for n_blocks in range(-(-n // LAPACK_ORDER), -(-n // SMALLEST) + 1):
        grid = Grid(n, -(-n // n_blocks), dtype)
        if grid.memory(least_workspace) <= memory:
            return grid
    raise _too_little(Grid(n, min(n, SMALLEST), dtype), memory, least_workspace)


def _too_little(least: Grid, memory: int, least_workspace: int) -> StorageError:
    needed = -(-least.memory(least_workspace) // 10**6)
    return StorageError(
        f"the inverse for {least.n:,} items by tiles of {least.tile:,} rows, {least.dtype}, needs {needed:,} MB of memory, "
        f"{memory / 1e6:,.0f} MB are available"
    )
