"""The order of methods over datasets: mean ranks, whether they differ, wins and profiles.

Datasets are the sample here, as in Demšar (JMLR 2006): a method has one value per dataset and its rank among all methods on it,
1 for the best and the mean of the ranks for equals. A method without a result within its budget shares the last ranks. Datasets
of one source count once together: each by its share of them, and in tests by their mean. Intervals over datasets and
comparisons of two methods are in `over_datasets.py`.

- The Friedman test asks whether all methods have the same mean rank. Iman and Davenport's form of it is reported, which is
  less conservative.
- A method wins against another if it is better on more datasets; Copeland's score is its wins minus its losses.
- The profile of a method (Dolan and Moré, 2002) is the share of datasets on which it reaches at least 1/t of the best value.
- Kendall's τ tells how far the order depends on the metric.
- The Bayesian signed-rank test (Benavoli et al., ICML 2014) tells how probable it is that a method is better than the first
  one on a further dataset, practically equal to it, or worse. Its prior is a further dataset without a difference, of weight
  1/2. The datasets have weights w from a Dirichlet distribution. Two datasets i, j that are drawn by these weights have the
  mean difference (z_i + z_j) / 2, and for each w, one of the regions worse, equal and better is the most probable. How often
  each is gives the probabilities. Differences are shares of the best value on their dataset, so that datasets with low values
  count as much as those with high ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankbench.core.rng import stream

PRIOR = 0.5
SAMPLES = 20_000  # of the weights: probabilities have standard errors of at most 0.004


@dataclass(frozen=True)
class MethodRanking:
    """`values` (n_datasets, n_methods): the mean of a metric on test, NaN without a result. Larger is better. `sources`: that
    of each dataset, by default its own.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    values: np.ndarray
    sources: tuple[str, ...] = ()

    @cached_property
    def _of_source(self) -> np.ndarray:
        """1 (n_sources, n_datasets) for a dataset of the source, 0 for others."""
        sources = self.sources or self.datasets
        return np.array(sources) == np.array(list(dict.fromkeys(sources)))[:, None]

    def by_source(self, table: np.ndarray) -> np.ndarray:
        """Return a row per source, the mean of the rows of its datasets."""
        # Added before it is divided, the mean of equal ranks is that rank to the bit.
        return np.asarray(self._of_source @ table / self._of_source.sum(axis=1, keepdims=True))

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights of the datasets (n_datasets,), of which those of a source add up to 1."""
        return np.asarray((self._of_source / self._of_source.sum(axis=1, keepdims=True)).sum(axis=0))

    @cached_property
    def shares(self) -> np.ndarray:
        """Values as shares of the best one on their dataset, 0 without a result."""
        filled = np.nan_to_num(self.values)
        best = filled.max(axis=1, keepdims=True, initial=0)
        return np.asarray(filled / np.where(best > 0, best, 1))

    @cached_property
    def ranks(self) -> np.ndarray:
        """Ranks (n_datasets, n_methods)."""
        from scipy.stats import rankdata

        return np.asarray(rankdata(-np.where(np.isnan(self.values), -np.inf, self.values), axis=1))

    @cached_property
    def mean_ranks(self) -> np.ndarray:
        """Mean ranks (n_methods,), rounded so that the order of sums does not order equal ones."""
        return np.round(self.by_source(self.ranks).mean(axis=0), 9)

    @cached_property
    def order(self) -> list[int]:
        """The positions of the methods, best first; equal mean ranks in the order of their names."""
        return sorted(range(len(self.methods)), key=lambda i: (self.mean_ranks[i], self.methods[i]))

    def friedman(self) -> float | None:
        """The p-value of the Friedman test in Iman and Davenport's form, None for fewer than three methods or two
        sources, or if all methods are equal.
        """
        from scipy.stats import f, friedmanchisquare

        ranks = self.by_source(self.ranks)
        n, k = ranks.shape
        if n < 2 or k < 3 or not np.ptp(ranks, axis=1).any():
            return None
        chi_squared = float(friedmanchisquare(*ranks.T).statistic)
        rest = n * (k - 1) - chi_squared
        if rest > 1e-9:
            return float(f.sf((n - 1) * chi_squared / rest, k - 1, (k - 1) * (n - 1)))
        # The order is the same on all datasets, where the form has no value: the chance that the others repeat the first one.
        ties = np.unique(ranks[0], return_counts=True)[1]
        orders = math.factorial(k) // math.prod(math.factorial(int(each)) for each in ties)
        return float(orders ** -(n - 1))

    @cached_property
    def wins(self) -> np.ndarray:
        """Number of sources (n_methods, n_methods) on which the method of the row is better than that of the column. A dataset
        counts by its weight.
        """
        better = self.ranks[:, :, None] < self.ranks[:, None, :]
        return np.asarray(np.round(np.tensordot(self.weights, better, 1), 9))  # thirds add up to 1 only when rounded

    def copeland(self) -> np.ndarray:
        """Pairwise wins minus losses (n_methods,)."""
        return np.asarray((self.wins > self.wins.T).sum(axis=1) - (self.wins < self.wins.T).sum(axis=1))

    def profiles(self, ratios: Sequence[float]) -> np.ndarray:
        """Shares of datasets (n_methods, n_ratios) on which a method has at least 1/ratio of the best value."""
        if not self.methods:
            return np.zeros((0, len(ratios)))
        best = np.nanmax(self.values, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.where(np.isnan(self.values) | (self.values <= 0), np.inf, best / self.values)
        near = [distance <= ratio * (1 + 1e-12) for ratio in ratios]
        return np.stack([np.average(each, axis=0, weights=self.weights) for each in near], axis=1)

    def part(self, datasets: Sequence[str], methods: Sequence[str]) -> MethodRanking:
        """The ranking of some of the methods on some of the datasets."""
        rows, columns = [self.datasets.index(each) for each in datasets], [self.methods.index(each) for each in methods]
        sources = tuple(self.sources[i] for i in rows) if self.sources else ()
        return MethodRanking(tuple(datasets), tuple(methods), self.values[np.ix_(rows, columns)], sources)


def agreement(full: MethodRanking, others: Mapping[str, MethodRanking]) -> dict[str, float]:
    """Kendall's τ-b of the mean ranks with those of other standings, such as by other metrics, over the methods of both."""
    result = {}
    for name, other in others.items():
        common = [method for method in full.methods if method in other.methods]
        if len(common) > 1:
            a = full.mean_ranks[[full.methods.index(method) for method in common]]
            b = other.mean_ranks[[other.methods.index(method) for method in common]]
            result[name] = kendall(a, b)
    return result


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's τ-b of two rankings (n,); 0 if one of them has only ties."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(a, b).statistic)
    return 0.0 if np.isnan(tau) else tau


@dataclass(frozen=True)
class Probabilities:
    worse: float
    equal: float
    better: float


def against_first(board: MethodRanking, rope: float) -> dict[str, Probabilities]:
    """Compare each method with the first one. `rope`: the share of the best value up to which a difference means nothing in
    practice, > 0. Without a result, a method has the value 0. Empty for fewer than two methods.
    """
    if len(board.methods) < 2:
        return {}
    shares = board.by_source(board.shares)
    first, *others = board.order
    weights = stream(0, "bayes").dirichlet([PRIOR, *np.ones(len(shares))], SAMPLES)
    return {board.methods[i]: _probabilities(shares[:, i] - shares[:, first], rope, weights) for i in others}


def _probabilities(differences: np.ndarray, rope: float, weights: np.ndarray) -> Probabilities:
    z = np.append(0.0, differences)
    means = (z[:, None] + z) / 2
    masses = [((weights @ region) * weights).sum(axis=1) for region in (means < -rope, np.abs(means) <= rope, means > rope)]
    worse, equal, better = np.bincount(np.argmax(masses, axis=0), minlength=3) / len(weights)
    return Probabilities(float(worse), float(equal), float(better))
