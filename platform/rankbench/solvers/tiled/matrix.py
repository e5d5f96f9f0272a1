"""A symmetric matrix whose lower triangle is stored in a file by tiles, and read by block columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rankbench.core.errors import StorageError
from rankbench.data.blocks import mirror_upper
from rankbench.solvers.tiled.graph import panels
from rankbench.solvers.tiled.store import TileFile


class TiledMatrix:
    """The matrix (n, n) that `tiled_inverse` stored in `folder`, exactly symmetric.

    It can be pickled for processes that see the same folder. `earlier`: seconds of the runs that the last one continued. Raises
    StorageError if the folder holds no finished inverse.
    """

    def __init__(self, folder: Path, earlier: float = 0.0):
        store = TileFile.open(folder)
        if store is None or store.finished < len(panels(store.grid.n_blocks)):
            raise StorageError(f"{folder}: holds no finished inverse; run it with resume")
        self._store, self.folder, self.earlier = store, folder, earlier
        self.n, self.tile, self.dtype = store.grid.n, store.grid.tile, store.grid.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def __reduce__(self) -> tuple:
        self._store.require_own()
        return TiledMatrix, (self.folder, self.earlier)

    def columns(self, start: int, stop: int) -> np.ndarray:
        """The columns start to stop, (n, stop − start), in row-major order. One tile of extra memory is needed.

        Every tile that the columns cross is read completely, so multiples of `tile` as start and stop read the least.
        """
        grid = self._store.grid
        out = np.empty((self.n, stop - start), self.dtype)
        buffer = np.empty(self.tile**2, self.dtype)
        for j in range(start // self.tile, -(-stop // self.tile)):
            left, right = max(start, j * self.tile), min(stop, j * self.tile + grid.side(j))
            inside = slice(left - j * self.tile, right - j * self.tile)
            for i in range(grid.n_blocks):
                stored = self._store.read((max(i, j), min(i, j)), buffer)
                if i == j:
                    mirror_upper(stored.T)
                block = out[i * self.tile : i * self.tile + grid.side(i), left - start : right - start]
                block[:] = stored[inside].T if i < j else stored[:, inside]
        return out

    def columns_within(self, memory: int) -> int:
        """Number of columns that fit into `memory` bytes beside a tile: at least one, at most those of a tile."""
        left = memory - self._store.grid.tile_bytes
        return max(1, min(self.tile, left // (self.n * self.dtype.itemsize)))

    def keep_in(self, folder: Path) -> None:
        """Store the matrix in `folder` as well, without a copy on the same disk. Raises StorageError if that fails."""
        self._store.keep_in(folder)

    def diagonal(self) -> np.ndarray:
        """The diagonal, (n,)."""
        buffer = np.empty(self.tile**2, self.dtype)
        blocks = range(self._store.grid.n_blocks)
        return np.concatenate([np.diagonal(self._store.read((k, k), buffer)).copy() for k in blocks])
