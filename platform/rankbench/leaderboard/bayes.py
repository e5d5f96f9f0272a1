"""How probable it is that a method is better than the first one on a further dataset, practically equal to it, or worse.

This is the Bayesian signed-rank test (Benavoli et al., ICML 2014), from the library of its authors. Differences are shares of
the best value on their dataset, so that datasets with low values count as much as those with high ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.leaderboard.standings import Standings

SAMPLES = 2000  # of the posterior: probabilities have standard errors of at most 0.011


@dataclass(frozen=True)
class Probabilities:
    better: float
    equal: float
    worse: float


def against_first(board: Standings, rope: float, seed: int = 0) -> dict[str, Probabilities]:
    """Compare each method with the first one. `rope`: the share of the best value up to which a difference means nothing in
    practice, > 0. Without a result, a method has the value 0.
    """
    from baycomp import SignedRankTest

    filled = np.nan_to_num(board.values)
    shares = filled / filled.max(axis=1, keepdims=True)
    first, *others = board.order
    found = {}
    for i in others:
        worse, equal, better = SignedRankTest.probs(shares[:, first], shares[:, i], rope, nsamples=SAMPLES, random_state=seed)
        found[board.methods[i]] = Probabilities(float(better), float(equal), float(worse))
    return found
