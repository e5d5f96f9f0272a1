r"""Baselines that a personalised model must beat: the most popular items for everyone, and a random ranking for every user, the
lower end of every metric.

$$y_{ui} = |U_i|, \qquad U_i \text{ the users of item } i$$ (popularity)

$$y_{ui} = \frac{p_u \cdot q_i}{\lVert q_i \rVert}, \qquad p_u, q_i \sim \mathcal{N}(0, I)$$ (random)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.params import Fixed, Params, param
from rankbench.core.rng import stream
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender


@dataclass(frozen=True)
class Popularity:
    pass


@direct("popularity", Popularity, families=("baseline",), title="Most popular items, the same for everyone", source="baseline")
def popularity(X: sp.csr_array, p: Popularity, seed: int) -> FactorRecommender:
    """Score items by their number of training interactions."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    dtype = np.float32 if counts.max(initial=0) < 2**24 else np.float64  # which hold such numbers exactly
    return FactorRecommender(np.ones((X.shape[0], 1), dtype), counts[:, None].astype(dtype))


@dataclass(frozen=True)
class Random(Params):
    embedding_dim: int = param(32, "dimension of the random vectors; a larger value makes users less alike", Fixed(32), gt=0)


@direct(
    "random", Random, families=("baseline",), title="A random ranking for every user", source="baseline", seeded=True,
    draws_users=True,
)  # fmt: skip
def random(X: sp.csr_array, p: Random, seed: int) -> FactorRecommender:
    """Draw independent standard normal vectors for users and items; scores are their dot products."""
    rng = stream(seed, "random", "factors")
    U, V = (rng.standard_normal((n, p.embedding_dim), np.float32) for n in X.shape)
    # Item vectors get equal lengths: long vectors would rank high for half of all users.
    return FactorRecommender(U, V / np.linalg.norm(V, axis=1, keepdims=True))
