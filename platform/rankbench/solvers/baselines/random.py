"""A random ranking for every user: the lower end of every metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.params import Fixed, Params, param
from rankbench.core.rng import stream
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender


@dataclass(frozen=True)
class Random(Params):
    embedding_dim: int = param(32, "dimension of the random vectors; a larger value makes users less alike", Fixed(32), gt=0)


@direct(
    "random",
    Random,
    families=("baseline",),
    title="A random ranking for every user",
    source="baseline",
    seeded=True,
    draws_users=True,
)
def random(X: sp.csr_array, p: Random, seed: int) -> FactorRecommender:
    """Draw independent standard normal vectors for users and items; scores are their dot products."""
    rng = stream(seed, "random", "factors")
    U, V = (rng.standard_normal((n, p.embedding_dim), np.float32) for n in X.shape)
    # Item vectors get equal lengths: long vectors would rank high for half of all users.
    return FactorRecommender(U, V / np.linalg.norm(V, axis=1, keepdims=True))
