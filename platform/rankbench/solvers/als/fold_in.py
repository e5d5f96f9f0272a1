"""A factor model that also scores users who were not fitted: their vectors are solved from their histories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.fitting.executors import ThreadMap
from rankbench.fitting.recommenders import FactorRecommender
from rankbench.solvers.als.half_step import Coefficients, HalfStep


@dataclass(frozen=True)
class FoldInRecommender(FactorRecommender):
    """U (n_users, embedding_dim), V (n_items, embedding_dim), and the loss's coefficients for a user of n interactions.

    Row n of `loss` (n_items + 1, 5), float64, holds w0, w1, t0, t1 and reg of `Coefficients` for a user with n interactions. A
    user with a zero vector in U had no interactions in the fit: `fold` gives this user the vector that the half step for users
    computes from the history.
    """

    loss: np.ndarray

    def fold(self, users: np.ndarray, history: sp.csr_array) -> FactorRecommender:
        """The model with vectors for `users` (m,) alone, whose interactions are `history` (m, n_items)."""
        known = users < len(self.U)
        new = np.ones(len(users), bool)
        new[known] = ~self.U[users[known]].any(axis=1)
        new &= np.diff(history.indptr) > 0
        if not new.any():
            return self
        rows = history[np.flatnonzero(new)]
        on, executor = Coefficients(*self.loss[np.diff(rows.indptr)].T), ThreadMap(numba.get_num_threads())
        user_step = HalfStep(rows, on, self.V.shape[1], self.V.dtype, "exact", executor)
        # A row for every number up to the largest, of which those of other users cost nothing: they are never written.
        U = np.zeros((int(users.max()) + 1, self.U.shape[1]), self.U.dtype)
        U[users[known]], U[users[new]] = self.U[users[known]], user_step.solve(self.V)
        return FactorRecommender(U, self.V)
