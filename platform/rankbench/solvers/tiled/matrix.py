"""A symmetric matrix whose lower triangle lies in a file by tiles; read by block columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbench.core.errors import StorageError
from rankbench.solvers.tiled.graph import panels
from rankbench.solvers.tiled.store import TileFile


class TiledMatrix:
    """What `tiled_inverse` left in `folder`: (n, n), of `dtype`, symmetric to the bit. It can be pickled, for processes that
    see the same folder. Raises StorageError when the folder holds no finished inverse.
    """

    def __init__(self, folder: Path):
        store = TileFile.open(folder)
        if store is None or store.finished < len(panels(store.grid.n_blocks)):
            raise StorageError(f"{folder}: holds no finished inverse; run it with resume")
        self._store, self.folder = store, folder
        self.n, self.tile, self.dtype = store.grid.n, store.grid.tile, store.grid.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def ndim(self) -> int:
        return 2

    def __reduce__(self) -> tuple:
        self._store.require_own()
        return TiledMatrix, (self.folder,)

    def columns(self, start: int, stop: int) -> np.ndarray:
        """Columns start to stop, (n, stop − start), by rows; one tile more of memory.

        Every tile that they cross is read whole: blocks that begin and end with a multiple of `tile` read least.
        """
        grid = self._store.grid
        out = np.empty((self.n, stop - start), self.dtype)
        buffer = np.empty(self.tile**2, self.dtype)
        for j in range(start // self.tile, -(-stop // self.tile)):
            left, right = max(start, j * self.tile), min(stop, j * self.tile + grid.side(j))
            inside = slice(left - j * self.tile, right - j * self.tile)
            for i in range(grid.n_blocks):
                block = out[i * self.tile : i * self.tile + grid.side(i), left - start : right - start]
                if i > j:
                    block[:] = self._store.read((i, j), buffer)[:, inside]
                elif i < j:
                    block[:] = self._store.read((j, i), buffer)[inside].T
                else:
                    lower = self._store.read((j, j), buffer)
                    _mirror(lower)
                    block[:] = lower[:, inside]
        return out

    def columns_within(self, memory: int) -> int:
        """How many columns fit into `memory` bytes beside a tile: at most as many as a tile has, at least one."""
        left = memory - self._store.grid.tile_bytes
        return max(1, min(self.tile, left // (self.n * self.dtype.itemsize)))

    def keep_in(self, folder: Path) -> None:
        """Make `folder` hold the matrix, too: without a copy where the disk is the same. Raises StorageError when it fails."""
        self._store.keep_in(folder)

    def diagonal(self) -> np.ndarray:
        """(n,), of `dtype`."""
        buffer = np.empty(self.tile**2, self.dtype)
        blocks = range(self._store.grid.n_blocks)
        return np.concatenate([np.diagonal(self._store.read((k, k), buffer)).copy() for k in blocks])


def _mirror(A: np.ndarray) -> None:
    """Copy the lower triangle of a column-major tile to the upper one, by rows of it: no second tile."""
    for i in range(1, len(A)):
        A[:i, i] = A[i, :i]
