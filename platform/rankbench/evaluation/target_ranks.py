"""Metrics of the ranks of all targets, wherever they are: partial AUC, and what a ranking among sampled items would show.

A target's rank among the candidates that are no targets is `above`, the number of those with a higher score; a tie counts half,
so a target lies in the middle of the candidates with its score, also for `opauc` and `llpauc`.

The sampled metrics rank each target among `SAMPLED` random candidates, as many papers did. They are here to show how far they
are from those of the full ranking, and never the default: the order of methods can differ (Krichene and Rendle, KDD 2020).
Nothing is drawn: the number of candidates above a target is binomial, so the expectation is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SAMPLED = 100  # negatives per target, drawn with replacement
TARGETS = 1 << 15  # targets whose ranks are in memory at a time
HALF = 0.5  # share of a user's targets, the best ones, that llpauc compares


@dataclass(frozen=True)
class TargetRanks:
    """`above` (n_targets,): the targets of all users in turn, those of user u at ptr[u]:ptr[u + 1]. `others` (m,): number of
    candidates that are no targets.
    """

    above: np.ndarray
    ptr: np.ndarray
    others: np.ndarray

    @property
    def user(self) -> np.ndarray:
        """The position of the user of each target (n_targets,)."""
        return np.repeat(np.arange(len(self.others)), np.diff(self.ptr))

    def mean(self, values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Mean (m,) over the targets of each user of a value per target (n_targets,)."""
        weights = np.ones(len(values)) if weights is None else weights
        sums = np.bincount(self.user, weights=values * weights, minlength=len(self.others))
        return np.asarray(sums / np.bincount(self.user, weights=weights, minlength=len(self.others)))


OfRanks = Callable[[TargetRanks, int], np.ndarray]
OF_RANKS: dict[str, OfRanks] = {}


def of_ranks(function: OfRanks) -> OfRanks:
    """Register a function of ranks and k under its own name. It returns a value per user (m,)."""
    OF_RANKS[function.__name__] = function
    return function


@of_ranks
def opauc(ranks: TargetRanks, k: int) -> np.ndarray:
    """Share of pairs of a target and one of the k best other candidates in the right order: one-way partial AUC"""
    return ranks.mean(_right_pairs(ranks, k))


@of_ranks
def llpauc(ranks: TargetRanks, k: int) -> np.ndarray:
    """The same for the better half of a user's targets, rounded up: lower-left partial AUC (Shi et al. 2024), α = 1/2"""
    order = np.lexsort((ranks.above, ranks.user))
    n_targets = np.diff(ranks.ptr)
    place = np.arange(len(order)) - np.repeat(ranks.ptr[:-1], n_targets)
    chosen = np.zeros(len(order))
    chosen[order] = place < np.repeat(np.ceil(HALF * n_targets), n_targets)
    return ranks.mean(_right_pairs(ranks, k), chosen)


@of_ranks
def recall_sampled(ranks: TargetRanks, k: int) -> np.ndarray:
    """Expected share of a user's targets among the first k of themselves and 100 random other candidates"""
    return ranks.mean(_expected(np.ones(min(k, SAMPLED + 1)), ranks))


@of_ranks
def ndcg_sampled(ranks: TargetRanks, k: int) -> np.ndarray:
    """Expected mean over a user's targets of 1/log2(1 + rank) among 100 random other candidates, 0 beyond rank k"""
    gains = 1.0 / np.log2(np.arange(2, min(k, SAMPLED + 1) + 2))
    return ranks.mean(_expected(gains, ranks))


def _right_pairs(ranks: TargetRanks, k: int) -> np.ndarray:
    """The share (n_targets,) of the k best other candidates that are below a target, 1/2 if there are none."""
    n = np.minimum(k, ranks.others)[ranks.user]
    return np.where(n > 0, np.maximum(n - ranks.above, 0) / np.maximum(n, 1), 0.5)


def _expected(gains: np.ndarray, ranks: TargetRanks) -> np.ndarray:
    """The mean (n_targets,) of `gains`, those of the first ranks, over the ranks that a target has among random candidates."""
    from scipy.stats import binom

    share, places = ranks.above / np.maximum(ranks.others, 1)[ranks.user], np.arange(len(gains))[:, None]
    # In blocks, because SciPy keeps tens of numbers for each rank of each target.
    blocks = [share[start : start + TARGETS] for start in range(0, len(share), TARGETS)]
    return np.concatenate([gains @ binom.pmf(places, SAMPLED, block) for block in blocks]) if blocks else np.empty(0)
