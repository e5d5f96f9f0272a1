"""The division of an (n, n) matrix into tiles, and their largest size in a given memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.errors import StorageError
from rankbench.solvers.tiled.graph import HELD, Tile
from rankbench.solvers.tiled.kernels import BLOCK

STREAM = HELD + 1  # tile buffers beside the panel: those that a task reads, and the next one, which is being filled
# Rows per tile: with fewer, reading takes longer than the products; with more, a killed run would lose too much with its panel.
SMALLEST, LARGEST = 512, 16_384
RESERVE = 8 << 20  # bytes for arrays of counts, the lists of tiles, and single blocks of kernels


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
        """Bytes that the inverse needs: a panel, the larger of the stream's buffers and the workspace of the Gram, and the
        columns of a tile that a kernel copies.
        """
        copied = min(BLOCK, self.tile) * self.tile * self.dtype.itemsize
        return self.n_blocks * self.tile_bytes + max(STREAM * self.tile_bytes, least_workspace) + copied + RESERVE


def choose_grid(n: int, dtype: np.dtype, memory: int, least_workspace: int, tile: int | None = None) -> Grid:
    """Choose the fewest blocks whose inverse fits into `memory` bytes, or blocks of `tile` rows.

    Larger tiles reduce reading, which is n³/(2 tile) numbers. Raises StorageError, which states the memory that would suffice.
    """
    n_blocks = range(-(-n // LARGEST), -(-n // SMALLEST) + 1)
    tiles = [-(-n // blocks) for blocks in n_blocks] if tile is None else [min(tile, n)]
    grids = [Grid(n, rows, dtype) for rows in tiles]
    for grid in grids:
        if grid.memory(least_workspace) <= memory:
            return grid
    least = min(grids, key=lambda grid: grid.memory(least_workspace))
    needed = -(-least.memory(least_workspace) // 10**6)
    raise StorageError(
        f"the inverse for {n:,} items by tiles of {least.tile:,} rows, {dtype}, needs {needed:,} MB of memory, "
        f"{memory / 1e6:,.0f} MB are available"
    )
