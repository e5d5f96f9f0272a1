"""What a fitted model is: scores for users over a slice of items. Three forms exist.

They hold arrays and nothing else, so that a file, a worker and a notebook can hold them alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numba
import numpy as np
import scipy.sparse as sp


@runtime_checkable
class Recommender(Protocol):
    """Scores; higher is better. `family` groups models whose `base` is one and the same array."""

    @property
    def n_items(self) -> int: ...

    @property
    def family(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def fold(self, users: np.ndarray, history: sp.csr_array) -> Recommender:
        """The model that can score `users` (m,) from `history` (m, n_items): itself, where nothing is to be worked out."""

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """The costly part of the scores, shared within a family, written to `out` (m, len(items)) of `dtype`."""

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """The scores made from `base`, written to `out` (m, len(items)), which may be `base` itself."""


def score(model: Recommender, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
    """Scores (m, len(items)) of `users` (m,), whose known interactions are `history` (m, n_items) 0/1 CSR."""
    start, stop, _ = items.indices(model.n_items)
    model = model.fold(users, history)
    base = model.base(users, history, items, np.empty((history.shape[0], stop - start), model.dtype))
    return model.finish(base, history, items, base)


@dataclass(frozen=True)
class LinearRecommender:
    """Item-item weights W = C diag(beta) + diag(alpha), never multiplied out; scores are history @ W.

    C: (n_items, n_items) symmetric, float32 or float64; beta, alpha: (n_items,) float64. All closed forms of one
    regularised Gram share C and differ in the two vectors (Moon et al., DEQL, collapsed: W_i = beta_i C_i + alpha_i e_i).
    """

    C: np.ndarray
    beta: np.ndarray
    alpha: np.ndarray

    @property
    def n_items(self) -> int:
        return len(self.beta)

    @property
    def family(self) -> int:
        return id(self.C)

    @property
    def dtype(self) -> np.dtype:
        return self.C.dtype

    def fold(self, users: np.ndarray, history: sp.csr_array) -> LinearRecommender:
        return self

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
        """W, (n_items, n_items): for small problems and tests."""
        return self.C * self.beta + np.diag(self.alpha)


@dataclass(frozen=True)
class FactorRecommender:
    """Embeddings: U (n_users, embedding_dim), V (n_items, embedding_dim); the score is U[u] · V[i]."""

    U: np.ndarray
    V: np.ndarray

    @property
    def n_items(self) -> int:
        return len(self.V)

    @property
    def family(self) -> int:
        return hash((id(self.U), id(self.V)))

    @property
    def dtype(self) -> np.dtype:
        return self.V.dtype

    def fold(self, users: np.ndarray, history: sp.csr_array) -> FactorRecommender:
        return self

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        return np.matmul(self.U[users], self.V[items].T, out=out)

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        if out is not base:
            out[:] = base
        return out


@dataclass(frozen=True)
class LowRankRecommender:
    """Item-item weights W = A Bᵀ + diag(alpha), never multiplied out; scores are history @ W.

    A, B: (n_items, k), of one dtype; alpha: (n_items,) float64. It knows no users: any history can be scored.
    """

    A: np.ndarray
    B: np.ndarray
    alpha: np.ndarray

    @property
    def n_items(self) -> int:
        return len(self.alpha)

    @property
    def family(self) -> int:
        return hash((id(self.A), id(self.B)))

    @property
    def dtype(self) -> np.dtype:
        return self.B.dtype

    def fold(self, users: np.ndarray, history: sp.csr_array) -> LowRankRecommender:
        return self

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        taste = np.empty((history.shape[0], self.A.shape[1]), self.A.dtype)
        _sum_rows(history.indptr, history.indices, self.A, 0, taste)
        return np.matmul(taste, self.B[items].T, out=out)

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, _, _ = items.indices(self.n_items)
        alpha = self.alpha[items].astype(base.dtype)
        _scale(base, np.ones_like(alpha), alpha, history.indptr, history.indices, start, out)
        return out

    def dense_weights(self) -> np.ndarray:
        """W, (n_items, n_items): for small problems and tests."""
        return self.A @ self.B.T + np.diag(self.alpha)


# Both kernels are serial: callers run blocks of users side by side, in threads that hold no lock.
@numba.njit(nogil=True, cache=True)
def _sum_rows(indptr: np.ndarray, indices: np.ndarray, C: np.ndarray, start: int, out: np.ndarray) -> None:
    """out[u] = Σ_{i in history of u} C[i, start:start + width], in order, so sums are repeatable."""
    width = out.shape[1]
    for u in range(out.shape[0]):
        row = out[u]
        row[:] = 0
        for s in range(indptr[u], indptr[u + 1]):
            source = C[indices[s], start : start + width]
            for j in range(width):
                row[j] += source[j]


@numba.njit(nogil=True, cache=True)
def _scale(
    base: np.ndarray, beta: np.ndarray, alpha: np.ndarray, indptr: np.ndarray, indices: np.ndarray, start: int, out: np.ndarray
) -> None:
    """out = base · beta by column, plus alpha where the user met the item."""
    width = out.shape[1]
    for u in range(out.shape[0]):
        for j in range(width):
            out[u, j] = base[u, j] * beta[j]
        for s in range(indptr[u], indptr[u + 1]):
            j = indices[s] - start
            if 0 <= j < width:
                out[u, j] += alpha[j]
