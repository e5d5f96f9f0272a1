"""Dot products of rows with items selected by index, compiled: pairs are sorted so that their vectors are in the cache.

A row b and its k-th item are pair s = b · n + k. Pairs are sorted into buckets of neighbouring items, whose vectors and
gradients fit into the cache of one core, and within a bucket they stay in the order of s, so that the row's vector is there,
too. In the order of s alone, nearly every item vector of a large table would come from memory.

Buckets, and groups of buckets in the backward pass, are each computed by one thread, and their number depends on the sizes
only, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import cgutils

from rankbench.core.compiler import numba
from rankbench.core.errors import require
from rankbench.core.simd import LANES, fma, integer, kernel, spread, total
from rankbench.kernels.parallel import in_parallel

_BUCKET = 8  # 2^8 item vectors of 64 floats, their gradients and those of the rows fit into the cache of one core
_CHUNK = 1 << 14  # pairs that are sorted at once
_GROUP = 1 << 17  # pairs of a group of buckets, whose gradients of the rows are added up apart


class Pairs(NamedTuple):
    """Pairs by bucket: bucket i has those from starts[i] to starts[i + 1]. `pair`, `row` and `item` are int32, (n_pairs,)."""

    starts: np.ndarray
    pair: np.ndarray
    row: np.ndarray
    item: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """The first bucket of each group, followed by the number of buckets."""
        n_groups = max(2, min(16, len(self.pair) // _GROUP))
        return np.linspace(0, len(self.starts) - 1, n_groups + 1).astype(np.int64)


def sorted_pairs(ids: np.ndarray, n_items: int) -> Pairs:
    """Sort the pairs of ids (B, n) int64, whose items are below `n_items`. Raises ConfigError for 2^31 pairs or more."""
    require(ids.size < 2**31, f"a batch of {ids.size:,} pairs is too large; choose a smaller batch_size or n_negatives")
    n_chunks = max(1, min(16, ids.size // _CHUNK))
    counts = np.zeros((n_chunks, (n_items >> _BUCKET) + 1), np.int64)
    in_parallel(_count, n_chunks, ids.size, ids, n_chunks, counts)
    # Buckets follow one another, and within a bucket the chunks.
    ends = np.cumsum(counts.T).reshape(counts.T.shape).T
    place = np.ascontiguousarray(ends - counts)
    starts = np.append(place[0], ids.size)
    pair, row, item = (np.empty(ids.size, np.int32) for _ in range(3))
    in_parallel(_fill, n_chunks, ids.size, ids, n_chunks, place, pair, row, item)
    return Pairs(starts, pair, row, item)


@numba.njit(nogil=True, cache=True)
def _count(ids, n_chunks, counts, start, stop):
    n_rows, n = ids.shape
    for chunk in range(start, stop):
        own = counts[chunk]
        for b in range(n_rows * chunk // n_chunks, n_rows * (chunk + 1) // n_chunks):
            for k in range(n):
                own[ids[b, k] >> _BUCKET] += 1


@numba.njit(nogil=True, cache=True)
def _fill(ids, n_chunks, place, pair, row, item, start, stop):
    n_rows, n = ids.shape
    for chunk in range(start, stop):
        own = place[chunk]
        for b in range(n_rows * chunk // n_chunks, n_rows * (chunk + 1) // n_chunks):
            for k in range(n):
                at = own[ids[b, k] >> _BUCKET]
                own[ids[b, k] >> _BUCKET] = at + 1
                pair[at], row[at], item[at] = b * n + k, b, ids[b, k]


@kernel
def _dot(builder, P, p, Q, q, n_vectors, out, at):
    """out[at] = P[p:] · Q[q:], for so many vectors."""
    sums = cgutils.alloca_once_value(builder, P.zero)
    with cgutils.for_range(builder, n_vectors) as loop:
        offset = builder.mul(loop.index, integer(LANES))
        left, right = P.load(builder.add(p, offset)), Q.load(builder.add(q, offset))
        builder.store(fma(builder, left, right, builder.load(sums)), sums)
    builder.store(total(builder, builder.load(sums)), builder.gep(out.data, [at]))


@kernel
def _add_both(builder, P, p, Q, q, n_vectors, weight, P_grad, p_at, Q_grad, q_at):
    """P_grad[p_at:] += weight · Q[q:] and Q_grad[q_at:] += weight · P[p:], for so many vectors."""
    weight = spread(builder, P.type, weight)
    with cgutils.for_range(builder, n_vectors) as loop:
        offset = builder.mul(loop.index, integer(LANES))
        left, right = P.load(builder.add(p, offset)), Q.load(builder.add(q, offset))
        for grad, at, vector in ((P_grad, builder.add(p_at, offset), right), (Q_grad, builder.add(q_at, offset), left)):
            grad.store(fma(builder, weight, vector, grad.load(at)), at)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def dots(rows, table, width, starts, pair, row, item, out, start, stop):
    """For the buckets start to stop: out[s] = rows_b · table_j for each pair s = (b, j). All arrays are flat."""
    for x in range(starts[start], starts[stop]):
        _dot(rows, np.int64(row[x]) * width, table, np.int64(item[x]) * width, width // LANES, out, np.int64(pair[x]))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def dots_back(rows, table, width, groups, starts, pair, row, item, grad, table_grad, row_grads, start, stop):
    """For the groups start to stop: the gradients of `dots`, for the rows in an array of each group's own. All are flat."""
    for group in range(start, stop):
        own = group * len(rows)
        for x in range(starts[groups[group]], starts[groups[group + 1]]):
            p, q = np.int64(row[x]) * width, np.int64(item[x]) * width
            _add_both(rows, p, table, q, width // LANES, grad[pair[x]], row_grads, own + p, table_grad, q)
