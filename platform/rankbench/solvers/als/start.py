"""Vectors of a fitted iALS, from which training by gradient steps can start."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.context import Context
from rankbench.fitting.drive import drive, result_of
from rankbench.fitting.method import METHODS, Iterative
from rankbench.solvers.als.fold_in import FoldInRecommender
from rankbench.solvers.factorisation import ials as _registered  # noqa: F401

ITERATIONS = 8


def fitted_ials(X: sp.csr_array, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """User vectors (n_users, dim) and item vectors (n_items, dim), float32, of iALS with its default parameters.

    Both tables are multiplied by numbers that give their vectors a mean length of 1 and keep the order of the scores. Users and
    items without interactions have zero vectors, as in iALS.
    """
    method = METHODS.get("ials")
    assert isinstance(method, Iterative)
    p = method.configure({"embedding_dim": dim, "iterations": ITERATIONS}, "init=ials")
    fit = result_of(drive(lambda start: method.steps(X, p, seed, np.float32, Context(), start), ITERATIONS))
    assert isinstance(fit.model, FoldInRecommender)
    users, items = (table.astype(np.float32) for table in (fit.model.U, fit.model.V))
    return tuple(table / max(float(np.linalg.norm(table, axis=1).mean()), 1e-12) for table in (users, items))
