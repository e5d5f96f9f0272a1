"""The most popular items for everyone: the baseline that a personalised model must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender


@dataclass(frozen=True)
class Popularity:
    pass


@direct("popularity", Popularity, families=("baseline",), title="Most popular items, the same for everyone", source="baseline")
def popularity(X: sp.csr_array, p: Popularity, seed: int) -> FactorRecommender:
    """Score items by their number of training interactions, which is exact in float32 below 2^24."""
    counts = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float32)
    return FactorRecommender(np.ones((X.shape[0], 1), np.float32), counts[:, None])
