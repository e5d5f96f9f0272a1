"""Vectors of a fitted iALS, from which training by gradient steps can start."""

from __future__ import annotations

from itertools import islice

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.rng import stream
from rankbench.fitting.context import Context
from rankbench.solvers.als.fit import alternate
from rankbench.solvers.factorisation.ials import IALS, ials

ITERATIONS = 8
UNKNOWN = 0.1  # length of the random vectors of users and items without interactions


def fitted_ials(X: sp.csr_array, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """User vectors (n_users, dim) and item vectors (n_items, dim), float32, of iALS with its default parameters.

    Both tables are multiplied by numbers that give their vectors a mean length of 1 and keep the order of the scores. Users and
    items without interactions have zero vectors in iALS, and a cosine with those has no gradient: they get small random ones.
    """
    steps = alternate(X, ials, IALS(embedding_dim=dim, iterations=ITERATIONS), seed, np.float32, Context())
    with threadpool_limits(1, "blas"):
        model = next(islice(steps, ITERATIONS, None)).model()
    steps.close()
    return _scaled(model.U, seed, "users"), _scaled(model.V, seed, "items")


def _scaled(table: np.ndarray, seed: int, name: str) -> np.ndarray:
    length = np.linalg.norm(table, axis=1)
    table = (table / max(float(length.mean()), 1e-12)).astype(np.float32)
    unknown = np.flatnonzero(length == 0)
    noise = stream(seed, "init", "ials", name).standard_normal((len(table), table.shape[1]), np.float32)
    table[unknown] = UNKNOWN / np.sqrt(table.shape[1]) * noise[unknown]
    return table
