"""What a fitted model is: scores for users over a slice of items. Two forms exist.

Both hold arrays and nothing else, so that a file, a worker and a notebook can hold them alike.
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

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
        """(m, len(items)): the costly part of the scores, shared within a family."""

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """The scores made from `base`, written to `out` (m, len(items)); `base` stays as it is."""


def score(model: Recommender, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
    """Scores (m, len(items)) of `users` (m,), whose known interactions are `history` (m, n_items) 0/1 CSR."""
    base = model.base(users, history, items)
    return model.finish(base, history, items, np.empty_like(base))


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

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
        start, stop, _ = items.indices(self.n_items)
        out = np.empty((history.shape[0], stop - start), self.C.dtype)
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

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice) -> np.ndarray:
        return self.U[users] @ self.V[items].T

    def finish(self, base: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        out[:] = base
        return out


@numba.njit(parallel=True, cache=True)
def _sum_rows(indptr, indices, C, start, out):
    """out[u] = Σ_{i in history of u} C[i, start:start + width]; a user a thread, in order, so sums are repeatable."""
    width = out.shape[1]
    for u in numba.prange(out.shape[0]):
        row = out[u]
        row[:] = 0
        for s in range(indptr[u], indptr[u + 1]):
            source = C[indices[s], start : start + width]
            for j in range(width):
                row[j] += source[j]


@numba.njit(parallel=True, cache=True)
def _scale(base, beta, alpha, indptr, indices, start, out):
    """out = base · beta by column, plus alpha where the user met the item."""
    width = out.shape[1]
    for u in numba.prange(out.shape[0]):
        for j in range(width):
            out[u, j] = base[u, j] * beta[j]
        for s in range(indptr[u], indptr[u + 1]):
            j = indices[s] - start
            if 0 <= j < width:
                out[u, j] += alpha[j]
