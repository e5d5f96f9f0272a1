"""What further datasets would say of an order of methods: intervals by the bootstrap over sources, comparisons that were fixed
beforehand, the agreement of two orders, and the traits of data that go with a difference.

The sources of the datasets are drawn with replacement (`MethodRanking.by_source`), so an interval is that of the mean over
further sources of the same kind. It says nothing of the noise within a dataset.

A rating such as Elo's or Bradley and Terry's is left out. Where every method meets every other one equally often, the number of
wins of a method, a tie being half a win, decides its rating; and on each dataset that is the number of methods minus the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankbench.core.rng import stream
from rankbench.evaluation.summary import Interval, percentile_bounds
from rankbench.judge.compare import holm
from rankbench.judge.ranking import MethodRanking, kendall

RESAMPLES = 2000
LEAST = 6  # sources below which no difference of two methods can be significant
FEW = 7  # sources below which no correlation can be, among as many traits as a board has
PERMUTATIONS = 50_000


def resampled(table: np.ndarray) -> np.ndarray:
    """Return column means (RESAMPLES, n_columns) of `table` (n_sources, n_columns), whose rows are drawn anew for each.

    The draws are those of the page that a reader works with (leaderboard/explorer.js), whose generator is this one, so that the
    page and what is said above it have the same intervals.
    """
    n, state, picks = len(table), 1, np.empty(RESAMPLES * len(table), np.int64)
    for i in range(len(picks)):
        state = (state * 1664525 + 1013904223) % 2**32
        picks[i] = state * n >> 32
    counts = np.zeros((RESAMPLES, n))
    np.add.at(counts, (np.repeat(np.arange(RESAMPLES), n), picks), 1)
    return np.asarray(counts @ table / n)


class Spread(NamedTuple):
    """Means over the sources with 95 % intervals. `mean_rank`; `share`: of the best value of a dataset, 0 without a result;
    `first`: share of the datasets on which the method is best, of which equals get equal parts. `leads`: how often the method
    has the best mean rank among the resamples; None for a single source, of which nothing can be drawn.
    """

    mean_rank: Interval
    share: Interval
    first: Interval
    leads: float | None


def spread(board: MethodRanking) -> dict[str, Spread]:
    """The spread of each method; intervals have no bounds for a single source."""
    k = len(board.methods)
    if not k:
        return {}
    best = board.ranks == board.ranks.min(axis=1, keepdims=True)
    table = board.by_source(np.hstack([board.ranks, board.shares, best / best.sum(axis=1, keepdims=True)]))
    low: list[float | None] = [None] * len(table.T)
    high, leads = low, low[:k]
    if len(table) > 1:
        draws = resampled(table)
        low, high = (bounds.tolist() for bounds in percentile_bounds(draws))
        ranks = np.round(draws[:, :k], 9)  # means of equal ranks differ by rounding
        ahead = ranks == ranks.min(axis=1, keepdims=True)
        leads = (ahead / ahead.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    cells = [Interval(*each) for each in zip(table.mean(axis=0).tolist(), low, high, strict=True)]
    return {name: Spread(*cells[i::k], leads[i]) for i, name in enumerate(board.methods)}


@dataclass(frozen=True)
class Paired:
    """Wilcoxon's signed-rank test of `method` against `against`: the mean `difference`, in shares of the best value of a
    dataset, the number of sources on which it is above and below zero, and p before and after Holm's correction.
    """

    method: str
    against: str
    difference: float
    better: int
    worse: int
    p: float
    p_holm: float


def paired(board: MethodRanking, pairs: Sequence[tuple[str, str]]) -> list[Paired]:
    """Test each pair of methods of the board. The correction is for all `pairs`, also those that it does not have. Differences
    of zero are ranked and then left out (Pratt, 1959).
    """
    from scipy.stats import wilcoxon

    at, shares, found = {name: i for i, name in enumerate(board.methods)}, board.by_source(board.shares), []
    known = [pair for pair in pairs if pair[0] in at and pair[1] in at]
    for a, b in known:
        z = np.round(shares[:, at[a]] - shares[:, at[b]], 12)
        p = float(wilcoxon(z, zero_method="pratt").pvalue) if z.any() else 1.0
        found.append((float(z.mean()), int((z > 0).sum()), int((z < 0).sum()), p))
    corrected = holm([each[-1] for each in found], len(pairs)) if found else []
    return [Paired(*pair, *test, p) for pair, test, p in zip(known, found, corrected, strict=True)]


def rank_agreement(a: MethodRanking, b: MethodRanking) -> Interval | None:
    """Kendall's τ-b of the mean ranks on two boards, such as those of two budgets, over the methods and datasets of both, and
    its interval over sources, which are drawn for both boards at once. None for fewer than two methods or no dataset.
    """
    methods, datasets = ([each for each in x if each in y] for x, y in ((a.methods, b.methods), (a.datasets, b.datasets)))
    if len(methods) < 2 or not datasets:
        return None
    parts = [board.part(datasets, methods) for board in (a, b)]
    tau = kendall(*(part.mean_ranks for part in parts))
    table = parts[0].by_source(np.hstack([part.ranks for part in parts]))
    if len(table) < 2:
        return Interval(tau, None, None)
    draws = np.round(resampled(table), 9)
    pairs = np.triu_indices(len(methods), 1)
    signs = [np.sign(half[:, pairs[0]] - half[:, pairs[1]]) for half in np.hsplit(draws, 2)]
    scale = np.sqrt(np.prod([np.abs(each).sum(axis=1) for each in signs], axis=0))
    taus = np.divide((signs[0] * signs[1]).sum(axis=1), scale, out=np.zeros(len(draws)), where=scale > 0)
    low, high = percentile_bounds(taus[:, None])
    return Interval(tau, float(low[0]), float(high[0]))


class TraitTest(NamedTuple):
    """Spearman's correlation `rho`, over sources, of a trait with the difference of two groups of methods: above zero, the
    first group is better where the trait is larger. `rho_complete`: that over the `complete` sources where each method of both
    groups has a result, None if these are all or fewer than three.
    """

    group: str
    against: str
    trait: str
    rho: float
    rho_complete: float | None
    complete: int
    p: float
    p_holm: float


def trait_tests(
    board: MethodRanking,
    traits: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Sequence[str]],
    pairs: Sequence[tuple[str, str]],
) -> list[TraitTest]:
    """Correlate each trait with the difference of each pair of groups: of the mean share of the best value that their methods
    reach. Methods that the board does not have are left out of their group. The p-values are those of the permutations of the
    sources, all of them if they are few; Holm's correction is for all pairs and traits. Empty for fewer than `FEW` sources; a
    difference or a trait that is the same everywhere is not correlated.
    """
    from scipy.stats import permutation_test, rankdata, spearmanr

    part = board.part([name for name in board.datasets if traits.get(name)], board.methods)
    shares, lost = part.by_source(part.shares), part.by_source(np.isnan(part.values).astype(float))
    if len(shares) < FEW:
        return []
    names = [*traits[part.datasets[0]]]
    table = part.by_source(np.array([[traits[dataset][name] for name in names] for dataset in part.datasets]))
    members = {name: [board.methods.index(each) for each in group if each in board.methods] for name, group in groups.items()}
    found = []
    for a, b in pairs:
        if members[a] and members[b]:
            difference = np.round(shares[:, members[a]].mean(axis=1) - shares[:, members[b]].mean(axis=1), 12)
            whole = ~lost[:, members[a] + members[b]].any(axis=1)
            for name, column in zip(names, table.T, strict=True):
                if np.ptp(difference) and np.ptp(column):
                    here, there = (rankdata(each) - (len(each) + 1) / 2 for each in (difference, column))
                    test = permutation_test(
                        (here,), lambda x, axis, there=there: np.sum(x * there, axis=axis), permutation_type="pairings",
                        vectorized=True, n_resamples=PERMUTATIONS, batch=1000, random_state=stream(0, "traits", a, b, name),
                    )  # fmt: skip
                    rho = float(spearmanr(difference, column).statistic)
                    found.append((a, b, name, rho, _of_part(difference, column, whole), int(whole.sum()), float(test.pvalue)))
    corrected = holm([each[-1] for each in found], len(pairs) * len(names)) if found else []
    return [TraitTest(*each, p) for each, p in zip(found, corrected, strict=True)]


def _of_part(a: np.ndarray, b: np.ndarray, part: np.ndarray) -> float | None:
    """Spearman's correlation over a part; None if that is all, fewer than three, or one of the two is the same everywhere."""
    from scipy.stats import spearmanr

    if part.all() or part.sum() < 3 or not (np.ptp(a[part]) and np.ptp(b[part])):
        return None
    return float(spearmanr(a[part], b[part]).statistic)
