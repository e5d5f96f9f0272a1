"""Fitted models: they score users for a slice of items. Five forms are defined here, a sixth in `pair_recommender.py`.

They consist only of arrays, so that they are easily saved, sent to workers and used in notebooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import by_threads, slices

_ENCODED = 1024  # histories that are encoded at once


@runtime_checkable
class Recommender(Protocol):
    """A model that scores items; higher is better. Models of the same `family` share the array that `base` computes."""

    @property
    def n_items(self) -> int: ...

    @property
    def family(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def fold(self, users: np.ndarray, history: sp.csr_array) -> Recommender:
        """Return a model that scores `users` (m,) from `history` (m, n_items): itself, if nothing has to be computed."""
        return self

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """Write the costly part of the scores, shared within a family, to `out` (m, len(items)) of `dtype` and return it."""

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """Write the scores computed from `base` to `out` (m, len(items)), which may be `base` itself, and return it. They are
        `base`, if nothing has to be computed.
        """
        if out is not base:
            out[:] = base
        return out


class ArrayRecommender(Recommender):
    """A model of arrays. Models of one family share the arrays named `SHARED`, of which the last has a row for each item."""

    SHARED: ClassVar[tuple[str, ...]]

    @property
    def n_items(self) -> int:
        return len(getattr(self, self.SHARED[-1]))

    @property
    def family(self) -> int:
        return hash(tuple(id(getattr(self, name)) for name in self.SHARED))

    @property
    def dtype(self) -> np.dtype:
        return getattr(self, self.SHARED[-1]).dtype


def score(model: Recommender, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
    """Return scores (m, len(items)) of `users` (m,), whose known interactions are `history` (m, n_items) 0/1 CSR."""
    start, stop, _ = items.indices(model.n_items)
    model = model.fold(users, history)
    base = model.base(users, history, items, np.empty((history.shape[0], stop - start), model.dtype))
    return model.finish(base, history, items, base)


@dataclass(frozen=True)
class LinearRecommender(ArrayRecommender):
    """Item-item weights W = C diag(beta) + diag(alpha), never computed explicitly; scores are history @ W.

    C: (n_items, n_items) symmetric, float32 or float64; beta, alpha: (n_items,) float64. All closed forms of one
    regularised Gram share C and differ in the two vectors (Moon et al., DEQL, collapsed: W_i = beta_i C_i + alpha_i e_i).
    """

    SHARED = ("C",)

    C: np.ndarray
    beta: np.ndarray
    alpha: np.ndarray

    @property
    def n_items(self) -> int:
        return len(self.beta)

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, _, _ = items.indices(self.n_items)
        _sum_rows(history.indptr, history.indices, self.C, start, out)
        return out

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, _, _ = items.indices(self.n_items)
        beta, alpha = self.beta[items].astype(base.dtype), self.alpha[items].astype(base.dtype)
        _scale(base, beta, alpha, history.indptr, history.indices, start, out)
        return out

    def dense_weights(self) -> np.ndarray:
        """Return W (n_items, n_items), for small problems and tests."""
        return self.C * self.beta + np.diag(self.alpha)


@dataclass(frozen=True)
class FactorRecommender(ArrayRecommender):
    """Embeddings: U (n_users, embedding_dim), V (n_items, embedding_dim); the score is U[u] · V[i]."""

    SHARED = ("U", "V")

    U: np.ndarray
    V: np.ndarray

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        return np.matmul(self.U[users], self.V[items].T, out=out)


@dataclass(frozen=True)
class LowRankRecommender(ArrayRecommender):
    """Item-item weights W = A Bᵀ + diag(alpha), never computed explicitly; scores are history @ W.

    A, B: (n_items, k) of the same dtype; alpha: (n_items,) float64. The model has no users, so it can score any history.
    """

    SHARED = ("A", "B")

    A: np.ndarray
    B: np.ndarray
    alpha: np.ndarray

    @property
    def n_items(self) -> int:
        return len(self.alpha)

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        profile = np.empty((history.shape[0], self.A.shape[1]), self.A.dtype)
        _sum_rows(history.indptr, history.indices, self.A, 0, profile)
        return np.matmul(profile, self.B[items].T, out=out)

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, _, _ = items.indices(self.n_items)
        alpha = self.alpha[items].astype(base.dtype)
        _scale(base, np.ones_like(alpha), alpha, history.indptr, history.indices, start, out)
        return out

    def dense_weights(self) -> np.ndarray:
        """Return W (n_items, n_items), for small problems and tests."""
        return self.A @ self.B.T + np.diag(self.alpha)


@dataclass(frozen=True)
class SparseRecommender(ArrayRecommender):
    """Item-item weights W, most of which are zero; scores are history @ W.

    Row i of W has the weights data[indptr[i] : indptr[i + 1]] in the columns `indices` there, which ascend: indptr
    (n_items + 1,) int64, indices (n,) int32, data (n,) float32 or float64. The model has no users, so it can score any history.
    Raises ValueError if the arrays are no such matrix.
    """

    SHARED = ("indptr", "indices", "data")

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    def __post_init__(self) -> None:
        ptr, at = self.indptr, self.indices
        if ptr.dtype != np.int64 or at.dtype != np.int32 or {ptr.ndim, at.ndim} != {1} or not len(ptr):
            raise ValueError("indptr and indices are not one-dimensional arrays of int64 and int32")
        if (ptr[0], ptr[-1]) != (0, len(at)) or (np.diff(ptr) < 0).any() or self.data.shape != at.shape:
            raise ValueError("indptr, indices and data do not fit together")
        descends = np.flatnonzero(np.diff(at) <= 0) + 1
        if len(at) and (at.min() < 0 or at.max() >= self.n_items or not np.isin(descends, ptr).all()):
            raise ValueError("the indices of a row do not ascend, or are no items")

    @property
    def n_items(self) -> int:
        return len(self.indptr) - 1

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, _, _ = items.indices(self.n_items)
        _sum_sparse_rows(history.indptr, history.indices, self.indptr, self.indices, self.data, start, out)
        return out

    def dense_weights(self) -> np.ndarray:
        """Return W (n_items, n_items), for small problems and tests."""
        return sp.csr_array((self.data, self.indices, self.indptr), shape=(self.n_items, self.n_items)).toarray()


@dataclass(frozen=True)
class AutoencoderRecommender(ArrayRecommender):
    """An encoder of histories and a decoder, as MultiVAE has them (Liang et al., WWW 2018), without noise and dropout.

    The scores of a history x are [g, 1] · V_i with g = tanh((h Q2 + q2) P1 + p1) and h = tanh(x / ‖x‖ Q1 + q1). Shapes: Q1
    (n_items, a), q1 (a,), Q2 (a, d), q2 (d,), P1 (d, b), p1 (b,), V (n_items, b + 1), whose last column holds the biases of
    the items. All have the same dtype. The model has no users, so it can score any history. Raises ValueError if V has another
    width.
    """

    SHARED = ("Q1", "V")

    Q1: np.ndarray
    q1: np.ndarray
    Q2: np.ndarray
    q2: np.ndarray
    P1: np.ndarray
    p1: np.ndarray
    V: np.ndarray

    def __post_init__(self) -> None:
        if self.V.shape[-1] != self.p1.shape[-1] + 1:
            raise ValueError(f"V has {self.V.shape[-1]} columns, expected one more than the {self.p1.shape[-1]} of p1")

    def fold(self, users: np.ndarray, history: sp.csr_array) -> FactorRecommender:
        """The model with the vectors [g, 1] of `users` (m,), whose interactions are `history` (m, n_items)."""
        U = np.zeros((int(users.max(initial=-1)) + 1, self.V.shape[1]), self.dtype)
        parts = slices(0, len(users), _ENCODED)
        for part, encoded in zip(parts, by_threads(lambda part: self._encoded(history[part]), parts), strict=True):
            U[users[part], :-1], U[users[part], -1] = encoded, 1
        return FactorRecommender(U, self.V)

    def _encoded(self, history: sp.csr_array) -> np.ndarray:
        sums = np.empty((history.shape[0], self.Q1.shape[1]), self.dtype)
        _sum_rows(history.indptr, history.indices, self.Q1, 0, sums)
        lengths = np.sqrt(np.maximum(np.diff(history.indptr), 1)).astype(self.dtype)
        h = np.tanh(sums / lengths[:, None] + self.q1)
        return np.tanh((h @ self.Q2 + self.q2) @ self.P1 + self.p1)

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        return self.fold(users, history).base(users, history, items, out)


# The kernels are serial: callers run blocks of users in parallel threads, and the kernels release the GIL.
@numba.njit(nogil=True, cache=True)
def _sum_rows(indptr: np.ndarray, indices: np.ndarray, C: np.ndarray, start: int, out: np.ndarray) -> None:
    """out[u] = Σ_{i in history of u} C[i, start:start + width], in order, so that sums are reproducible."""
    width = out.shape[1]
    for u in range(out.shape[0]):
        row = out[u]
        row[:] = 0
        for s in range(indptr[u], indptr[u + 1]):
            source = C[indices[s], start : start + width]
            for j in range(width):
                row[j] += source[j]


@numba.njit(nogil=True, cache=True)
def _sum_sparse_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    data: np.ndarray,
    start: int,
    out: np.ndarray,
) -> None:
    """out[u] = Σ_{i in history of u} W[i, start:start + width], in order, for W in the arrays rows, columns and data."""
    stop = start + out.shape[1]
    for u in range(out.shape[0]):
        out[u] = 0
        for s in range(indptr[u], indptr[u + 1]):
            first, end = rows[indices[s]], rows[indices[s] + 1]
            at = first + np.searchsorted(columns[first:end], start)
            while at < end and columns[at] < stop:
                out[u, columns[at] - start] += data[at]
                at += 1


@numba.njit(nogil=True, cache=True)
def _scale(
    base: np.ndarray, beta: np.ndarray, alpha: np.ndarray, indptr: np.ndarray, indices: np.ndarray, start: int, out: np.ndarray
) -> None:
    """out = base · beta by column, plus alpha for the items in the user's history."""
    width = out.shape[1]
    for u in range(out.shape[0]):
        for j in range(width):
            out[u, j] = base[u, j] * beta[j]
        for s in range(indptr[u], indptr[u + 1]):
            j = indices[s] - start
            if 0 <= j < width:
                out[u, j] += alpha[j]
