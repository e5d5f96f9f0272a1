"""Item-item models of which each column, the weights for one target item, is found on its own: by blocks of columns in
threads, with only the largest weights of a column kept.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import by_threads
from rankbench.fitting.recommenders import SparseRecommender

COLUMNS = 64  # columns of a block, whatever the number of threads

Column = tuple[np.ndarray, np.ndarray]  # the rows of its weights, int32, and the weights, float32


def by_columns(columns: Callable[[range], list[Column]], n_items: int) -> SparseRecommender:
    """The model of the columns that `columns` returns for a range of target items."""
    blocks = [range(start, min(start + COLUMNS, n_items)) for start in range(0, n_items, COLUMNS)]
    found = chain.from_iterable(by_threads(columns, blocks))
    rows, weights = zip(*found, strict=True)
    indptr = np.cumsum([0, *map(len, rows)])
    W = sp.csc_array((np.concatenate(weights), np.concatenate(rows), indptr), shape=(n_items, n_items)).tocsr()
    return SparseRecommender(W.indptr.astype(np.int64), W.indices.astype(np.int32), W.data)


@numba.njit(nogil=True, cache=True)
def largest(values: np.ndarray, k: int) -> np.ndarray:
    """The positions, ascending, of the k largest values above 0; of equal ones, the first."""
    n = len(values)
    least, room = values.dtype.type(0), 0
    if n > k:
        least = max(least, np.partition(values, n - k)[n - k])
        room = k - (values > least).sum() if least > 0 else 0
    kept = np.empty(min(n, k), np.int64)
    found = 0
    for at in range(n):
        tie = values[at] == least and room > 0
        if values[at] > least or tie:
            room -= tie
            kept[found] = at
            found += 1
    return kept[:found]
