"""Factors that know how a user's vector follows from a history: users of the fit have theirs, others are solved for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numba
import numpy as np
import scipy.sparse as sp

from rankbench.fitting.executors import ThreadMap
from rankbench.fitting.recommenders import FactorRecommender
from rankbench.solvers.als.half_step import Coefficients, Side
from rankbench.solvers.als.quadratic_loss import Problem


@dataclass(frozen=True)
class FoldInRecommender(FactorRecommender):
    """U (n_users, embedding_dim), V (n_items, embedding_dim), and the loss's coefficients for a user of n interactions.

    `loss` (n_items + 1, 5) float64: all_weight, weight, all_target, target and reg of a Problem's user with so many
    interactions as the row's number. A user whose vector in U is zero had no interactions in the fit: `fold` gives such a
    one the vector that the loss's user step gives for the history.
    """

    loss: np.ndarray

    @classmethod
    def of(cls, U: np.ndarray, V: np.ndarray, table: Problem) -> FoldInRecommender:
        columns = (table.all_weight, table.weight, table.all_target, table.target, table.reg_users)
        return cls(U, V, np.column_stack(columns))

    def fold(self, users: np.ndarray, history: sp.csr_array) -> FactorRecommender:
        """The model with a vector for each of `users` (m,), whose interactions are `history` (m, n_items)."""
        known = users < len(self.U)
        new = np.ones(len(users), bool)
        new[known] = ~self.U[users[known]].any(axis=1)
        new &= np.diff(history.indptr) > 0
        if not new.any():
            return self
        rows = history[np.flatnonzero(new)]
        mine = Coefficients(*self.loss[np.diff(rows.indptr)].T)
        side = Side(rows, mine, self.V.shape[1], self.V.dtype, "exact", ThreadMap(numba.get_num_threads()))
        U = np.zeros((max(len(self.U), int(users.max()) + 1), self.U.shape[1]), self.U.dtype)
        U[: len(self.U)] = self.U
        U[users[new]] = side.solve(self.V)
        return dataclasses.replace(self, U=U)
