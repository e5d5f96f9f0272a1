"""The order of methods over datasets: mean ranks, which of their differences can be told from chance, wins and profiles.

Datasets are the sample here, as in Demšar (JMLR 2006): a method has one value per dataset and its rank among all methods on it,
1 for the best and the mean of the ranks for equals. A method without a result within its budget shares the last ranks.

- The Friedman test asks whether all methods have the same mean rank. Iman and Davenport's form of it is reported, which is
  less conservative.
- Two methods differ by Nemenyi's test if their mean ranks differ by more than the critical difference. It covers all pairs.
- Wilcoxon's signed-rank test compares two methods by their differences on the datasets, with Holm's correction over all pairs.
- A method wins against another if it is better on more datasets; Copeland's score is its wins minus its losses.
- The profile of a method (Dolan and Moré, 2002) is the share of datasets on which it reaches at least 1/t of the best value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankbench.evaluation.compare import LEVEL, holm
from rankbench.leaderboard.results import Result


@dataclass(frozen=True)
class Standings:
    """`values` (n_datasets, n_methods): the mean of a metric on test, NaN without a result. Larger is better."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    values: np.ndarray

    @cached_property
    def ranks(self) -> np.ndarray:
        """Ranks (n_datasets, n_methods)."""
        from scipy.stats import rankdata

        return np.asarray(rankdata(-np.where(np.isnan(self.values), -np.inf, self.values), axis=1))

    @cached_property
    def mean_ranks(self) -> np.ndarray:
        """Mean ranks (n_methods,)."""
        return np.asarray(self.ranks.mean(axis=0))

    @cached_property
    def order(self) -> list[int]:
        """The positions of the methods, best first; equal mean ranks in the order of their names."""
        return sorted(range(len(self.methods)), key=lambda i: (self.mean_ranks[i], self.methods[i]))

    def friedman(self) -> float | None:
        """The p-value of the Friedman test in Iman and Davenport's form, None for fewer than three methods or two
        datasets, or if all methods are equal.
        """
        from scipy.stats import f, friedmanchisquare

        n, k = self.ranks.shape
        if n < 2 or k < 3 or not np.ptp(self.ranks, axis=1).any():
            return None
        chi_squared = float(friedmanchisquare(*self.ranks.T).statistic)
        rest = n * (k - 1) - chi_squared
        if rest > 1e-9:
            return float(f.sf((n - 1) * chi_squared / rest, k - 1, (k - 1) * (n - 1)))
        # The order is the same on all datasets, where the form has no value: the chance that the others repeat the first one.
        ties = np.unique(self.ranks[0], return_counts=True)[1]
        orders = math.factorial(k) // math.prod(math.factorial(int(each)) for each in ties)
        return float(orders ** -(n - 1))

    def critical_difference(self) -> float | None:
        """The difference of mean ranks beyond which Nemenyi's test tells two methods apart, None for a single method."""
        from scipy.stats import studentized_range

        n, k = self.ranks.shape
        if k < 2:
            return None
        q = float(studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2)
        return q * math.sqrt(k * (k + 1) / (6 * n))

    def groups(self) -> list[tuple[int, int]]:
        """The longest runs of `order`, first and last place, within which Nemenyi's test tells nobody apart."""
        difference, ranks = self.critical_difference(), [self.mean_ranks[i] for i in self.order]
        if difference is None:
            return []
        runs: list[tuple[int, int]] = []
        for first in range(len(ranks)):
            last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] <= difference)
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return runs

    def wilcoxon_holm(self) -> np.ndarray:
        """Corrected p-values (n_methods, n_methods) of Wilcoxon's signed-rank test, 1 on the diagonal and for equal columns.

        Without a result, a method has the value 0.
        """
        from scipy.stats import wilcoxon

        k = len(self.methods)
        filled = np.nan_to_num(self.values)
        pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
        tests = [
            float(wilcoxon(filled[:, i], filled[:, j], zero_method="pratt").pvalue)
            if (filled[:, i] != filled[:, j]).any()
            else 1.0
            for i, j in pairs
        ]
        result = np.ones((k, k))
        for (i, j), p in zip(pairs, holm(tests) if tests else [], strict=True):
            result[i, j] = result[j, i] = p
        return result

    @cached_property
    def wins(self) -> np.ndarray:
        """Number of datasets (n_methods, n_methods) on which the method of the row is better than that of the column."""
        return np.asarray((self.ranks[:, :, None] < self.ranks[:, None, :]).sum(axis=0))

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
        return np.stack([(distance <= ratio * (1 + 1e-12)).mean(axis=0) for ratio in ratios], axis=1)

    def without(self, dataset: int) -> Standings:
        """The same without one dataset."""
        kept = [i for i in range(len(self.datasets)) if i != dataset]
        return Standings(tuple(self.datasets[i] for i in kept), self.methods, self.values[kept])


def standings(results: Iterable[Result], metric: str) -> Standings:
    """The standings of entries with one budget.

    The table has no gaps. A dataset is left out if fewer than half as many methods were run on it as on another one, because
    most cannot be measured there, or if none has a result. Of the methods, those are left out that were not run on all datasets
    that remain. An entry that was measured without this metric counts as not run.
    """
    table: dict[str, dict[str, float]] = {}
    for each in results:
        unknown = each.finished and metric not in each.metrics
        if each.status != "not applicable" and not unknown:
            table.setdefault(each.dataset, {})[each.entrant] = each.metrics[metric][0] if each.finished else math.nan
    most = max(map(len, table.values()), default=0)
    table = {
        name: row for name, row in sorted(table.items()) if 2 * len(row) >= most and not all(map(math.isnan, row.values()))
    }
    everywhere = set.intersection(*(set(row) for row in table.values())) if table else set()
    methods = tuple(sorted(everywhere))
    # Those with a result may be methods that are left out.
    table = {name: row for name, row in table.items() if not methods or not all(math.isnan(row[method]) for method in methods)}
    values = np.array([[row[method] for method in methods] for row in table.values()]).reshape(len(table), len(methods))
    return Standings(tuple(table), methods, values)
