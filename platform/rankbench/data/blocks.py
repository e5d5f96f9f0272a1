"""Sparse 0/1 matrices: building them from pairs, uniting them, and computing a Gram matrix with a compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.errors import require
from rankbench.core.memory import dense_bytes, require_memory
from rankbench.core.thread_pool import divided

TILE = 64  # rows and columns of a matrix that stay in cache together


def csr_from_pairs(user: np.ndarray, item: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """A 0/1 float32 CSR matrix, columns sorted within rows; a pair given twice counts once."""
    matrix = sp.csr_array((np.ones(len(user), np.float32), (user, item)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def csr_from_parts(indptr: np.ndarray, indices: np.ndarray, n_items: int) -> sp.csr_array:
    """A 0/1 float32 CSR matrix over index arrays that may be memory-mapped; they are not copied."""
    matrix = sp.csr_array((len(indptr) - 1, n_items), dtype=np.float32)
    matrix.indptr, matrix.indices = indptr, indices
    matrix.data = np.ones(len(indices), np.float32)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def union(*matrices: sp.csr_array) -> sp.csr_array:
    """The union of 0/1 matrices. If at most one has entries, it is returned without a copy."""
    filled = [matrix for matrix in matrices if matrix.nnz] or list(matrices[:1])
    result = filled[0]
    for matrix in filled[1:]:
        result = (result + matrix).tocsr()
    if len(filled) > 1:
        result.sort_indices()
        result.data[:] = 1.0
    return result


@dataclass
class Gram:
    """XᵀX of a 0/1 matrix X. `take()` hands over its memory, once, so that the inverse can overwrite it."""

    matrix: np.ndarray | None  # (n_items, n_items), float32 or float64
    counts: np.ndarray  # (n_items,) float64, its diagonal: the number of interactions per item

    @property
    def n_items(self) -> int:
        return len(self.counts)

    def copy(self) -> Gram:
        require(self.matrix is not None, "this Gram matrix was taken before; its memory now holds an inverse")
        return Gram(self.matrix.copy(order="K"), self.counts)

    def take(self) -> np.ndarray:
        matrix, self.matrix = self.matrix, None
        require(matrix is not None, "this Gram matrix was taken before; its memory now holds an inverse")
        return matrix


def require_exact(counts: np.ndarray, dtype: type | np.dtype) -> None:
    """Raise ConfigError if the type cannot hold the counts of items exactly."""
    exact = dtype == np.float64 or counts.max(initial=0) < 2**24
    require(exact, "an item has 2^24 interactions or more, which float32 cannot count: use dtype=float64")


def gram(X: sp.csr_array, dtype: type = np.float32) -> Gram:
    """Dense XᵀX, exact: co-occurrences are counted in int32, and float32 holds whole numbers below 2^24 exactly.

    X: (n_users, n_items) 0/1 CSR with sorted columns. Cost: Σ_u |I_u|² additions, halved by symmetry. Raises StorageError,
    before any work, if the matrix and the workspace of its in-place inversion do not fit into memory.
    """
    needed = dense_bytes(X.shape[1], np.dtype(dtype).itemsize, X.nnz)
    require_memory(needed, f"the item-item matrix of {X.shape[1]:,} items, {dtype.__name__},")
    n_items = X.shape[1]
    item_ptr, item_users, positions = by_item(X.indptr, X.indices, n_items)
    counts = np.diff(item_ptr).astype(np.float64)
    require_exact(counts, dtype)
    matrix = np.empty((n_items, n_items), dtype)
    divided(_gram_rows, (n_items + 1) // 2, item_ptr, item_users, positions, X.indptr, X.indices, matrix)
    mirror_upper(matrix)
    return Gram(matrix, counts)


@numba.njit(cache=True)
def by_item(user_ptr, user_items, n_items):
    """The transpose: for each item the start of its entries, their users, and their positions in `user_items`."""
    ptr = np.zeros(n_items + 1, np.int64)
    for s in range(len(user_items)):
        ptr[user_items[s] + 1] += 1
    ptr = np.cumsum(ptr)
    fill = ptr[:-1].copy()
    users, positions = np.empty(len(user_items), np.int32), np.empty(len(user_items), np.int64)
    for u in range(len(user_ptr) - 1):
        for s in range(user_ptr[u], user_ptr[u + 1]):
            i = user_items[s]
            users[fill[i]], positions[fill[i]] = u, s
            fill[i] += 1
    return ptr, users, positions


@numba.njit(nogil=True, cache=True)
def _gram_rows(item_ptr, item_users, positions, user_ptr, user_items, out, start, stop):
    """The upper triangle. Early rows are long and late rows short: a task takes one of each, so that threads end together."""
    n_items = out.shape[0]
    for task in range(start, stop):
        first = np.int64(task)
        last = n_items - 1 - first
        _gram_row(first, item_ptr, item_users, positions, user_ptr, user_items, out)
        if last != first:
            _gram_row(last, item_ptr, item_users, positions, user_ptr, user_items, out)


@numba.njit(cache=True)
def _gram_row(i, item_ptr, item_users, positions, user_ptr, user_items, out):
    """Row i from the diagonal on: the number of users who have both i and j >= i; a user's items j > i follow i in the CSR."""
    n_items = out.shape[0]
    row = np.zeros(n_items, np.int32)
    for s in range(item_ptr[i], item_ptr[i + 1]):
        # With unsigned indices Numba omits the check for negative ones at each access.
        for position in range(numba.uint64(positions[s]), numba.uint64(user_ptr[item_users[s] + 1])):
            row[numba.uint32(user_items[position])] += np.int32(1)
    for j in range(i, n_items):
        out[i, j] = row[j]


def mirror_upper(matrix: np.ndarray) -> None:
    """Copy the upper triangle to the lower."""
    divided(_mirror_upper, -(-matrix.shape[0] // TILE), matrix)


@numba.njit(nogil=True, cache=True)
def _mirror_upper(matrix, start, stop):
    """Rows of tiles of the lower triangle, tile by tile so that both sides stay in cache."""
    n, tile = matrix.shape[0], TILE
    for a in range(start, stop):
        for b in range(a + 1):
            for i in range(a * tile, min(n, (a + 1) * tile)):
                for j in range(b * tile, min(i, (b + 1) * tile)):
                    matrix[i, j] = matrix[j, i]
