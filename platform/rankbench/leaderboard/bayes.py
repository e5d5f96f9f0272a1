"""How probable it is that a method is better than the first one on a further dataset, practically equal to it, or worse.

This is the Bayesian signed-rank test (Benavoli et al., ICML 2014), with a further dataset without a difference, of weight 1/2,
as its prior. The datasets have weights w from a Dirichlet distribution. Two datasets i, j that are drawn by these weights have
the mean difference (z_i + z_j) / 2, and for each w, one of the regions worse, equal and better is the most probable. How often
each is gives the probabilities. Differences are shares of the best value on their dataset, so that datasets with low values
count as much as those with high ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.rng import stream
from rankbench.leaderboard.standings import Standings

PRIOR = 0.5
SAMPLES = 20_000  # of the weights: probabilities have standard errors of at most 0.004


@dataclass(frozen=True)
class Probabilities:
    worse: float
    equal: float
    better: float


def against_first(board: Standings, rope: float, seed: int = 0) -> dict[str, Probabilities]:
    """Compare each method with the first one. `rope`: the share of the best value up to which a difference means nothing in
    practice, > 0. Without a result, a method has the value 0. Empty for fewer than two methods.
    """
    if len(board.methods) < 2:
        return {}
    filled = np.nan_to_num(board.values)
    best = filled.max(axis=1, keepdims=True)
    shares = filled / np.where(best > 0, best, 1)
    first, *others = board.order
    weights = stream(seed, "bayes").dirichlet([PRIOR, *np.ones(len(shares))], SAMPLES)
    return {board.methods[i]: _probabilities(shares[:, i] - shares[:, first], rope, weights) for i in others}


def _probabilities(differences: np.ndarray, rope: float, weights: np.ndarray) -> Probabilities:
    z = np.append(0.0, differences)
    means = (z[:, None] + z) / 2
    masses = [((weights @ region) * weights).sum(axis=1) for region in (means < -rope, np.abs(means) <= rope, means > rope)]
    worse, equal, better = np.bincount(np.argmax(masses, axis=0), minlength=3) / len(weights)
    return Probabilities(float(worse), float(equal), float(better))
