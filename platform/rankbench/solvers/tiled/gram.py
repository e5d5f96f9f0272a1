"""The shifted Gram matrix XᵀX, computed from CSR one block column of tiles at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import divided
from rankbench.data.blocks import require_exact
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.shared import shifted_diagonal
from rankbench.solvers.tiled.grid import Grid

ENTRY = 12  # bytes per interaction in item order: its user, int32, and its position, int64


class ShiftedGram:
    """G + odds · diag(G) + ridge · I of a 0/1 CSR matrix X (n_users, n_items) with sorted columns, which may be memory-mapped.

    The matrix has the same bits as the one that `inverse.shared.inverse` inverts, because its counts are whole numbers. Raises
    ConfigError if they are too large for float32.
    """

    def __init__(self, X: sp.csr_array, shift: Shift, dtype: np.dtype):
        self.X = X
        self.counts = count_items(X.indices, X.shape[1])
        require_exact(self.counts, dtype)
        self.diagonal = shifted_diagonal(self.counts, shift, dtype)

    @property
    def pairs(self) -> float:
        """Number of pairs of interactions of one user that are counted."""
        each = np.diff(self.X.indptr).astype(np.float64)
        return float(each @ (each + 1)) / 2

    @property
    def least_workspace(self) -> int:
        """The smallest workspace in bytes, which holds the interactions of one item."""
        return ENTRY * int(self.counts.max(initial=1))

    def column(self, k: int, grid: Grid, panel: np.ndarray, workspace: np.ndarray, rows: Sequence[int] | None = None) -> None:
        """Fill `panel` (n_blocks − k, tile²) with the tiles (i, k), i >= k, or only with those of ascending `rows` i.

        Of tile (k, k) only the lower triangle is filled. `workspace` is an array of bytes for the interactions of as many items
        at once as fit.
        """
        blocks = np.array(range(k, grid.n_blocks) if rows is None else rows)
        ranges = np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1)  # of successive blocks
        runs = np.array([(each[0], each[-1] + 1) for each in ranges])
        first, last = k * grid.tile, k * grid.tile + grid.side(k)
        capacity = workspace.nbytes // ENTRY
        positions = workspace[: 8 * capacity].view(np.int64)
        users = workspace[8 * capacity : ENTRY * capacity].view(np.int32)
        ends = np.cumsum(self.counts[first:last], dtype=np.int64)
        start = first
        while start < last:
            before = 0 if start == first else ends[start - first - 1]
            stop = max(start + 1, first + int(np.searchsorted(ends, before + capacity, "right")))
            ptr = np.append(0, ends[start - first : stop - first] - before)
            _by_item(self.X.indptr, self.X.indices, start, stop, ptr[:-1].copy(), users, positions)
            of_items = ptr, users, positions, self.X.indptr, self.X.indices, start, first, grid.n, grid.tile, runs, panel
            divided(_count_pairs, stop - start, *of_items)
            start = stop
        if blocks[0] == k:
            np.fill_diagonal(grid.view(panel[0], (k, k)), self.diagonal[first:last])


@numba.njit(cache=True)
def count_items(items, n_items):
    """The number of interactions per item, (n_items,) float64. NumPy would first copy memory-mapped `items`, as int64."""
    counts = np.zeros(n_items)
    for s in range(len(items)):
        counts[items[s]] += 1
    return counts


@numba.njit(cache=True)
def _by_item(user_ptr, user_items, start, stop, fill, users, positions):
    """Transpose the items start to stop: for each, from `fill` on, store its users and its positions in `user_items`."""
    for u in range(len(user_ptr) - 1):
        items = user_items[user_ptr[u] : user_ptr[u + 1]]
        for s in range(np.searchsorted(items, start), len(items)):
            if items[s] >= stop:
                break
            i = items[s] - start
            users[fill[i]], positions[fill[i]] = u, user_ptr[u] + s
            fill[i] += 1


@numba.njit(nogil=True, cache=True)
def _count_pairs(ptr, users, positions, user_ptr, user_items, start, first, n, tile, runs, panel, begin, end):
    """Columns of tiles from item `start` on: the number of users who have both the item and each later item of `runs`, which
    are ranges of blocks.
    """
    for task in range(begin, end):
        item = start + task
        done = 0
        for run in range(len(runs)):
            low, high = runs[run, 0] * tile, min(n, runs[run, 1] * tile)
            column = np.zeros(high - low, np.int32)
            for s in range(ptr[task], ptr[task + 1]):
                later = user_items[positions[s] : user_ptr[users[s] + 1]]
                for position in range(np.searchsorted(later, low) if low > item else 0, len(later)):
                    if later[position] >= high:
                        break
                    column[later[position] - low] += np.int32(1)
            for top in range(0, high - low, tile):
                height = min(tile, high - low - top)
                at = (item - first) * height
                for row in range(height):
                    panel[done, at + row] = column[top + row]
                done += 1
