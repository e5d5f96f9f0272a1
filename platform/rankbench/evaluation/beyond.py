"""Metrics of whole lists: how items are exposed, how popular, new and different they are, and who gets good lists.

They read more than the hits of a user: the training interactions and what is known of the user. Their names say the group that
they are about. Groups of items, by the number of training interactions:

- cold items have none; among the others, head items are the most popular ones that have the first fifth of all interactions,
  tail items the least popular ones that have the last fifth, and middle items lie between (Abdollahpouri et al., 2019).

Groups of users, by the number of their known interactions: light users are the lowest third, heavy users the highest one, and
medium users lie between; equal numbers stay together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba

ITEM_GROUPS = ("cold", "tail", "middle", "head")
USER_GROUPS = ("light", "medium", "heavy")
SHORT, LONG = 0.2, 0.8  # shares of the interactions at which the head ends and the tail begins
SMOOTHED = 0.01  # share of the profile in the distribution of a list, so that the divergence is finite (Steck 2018)


@dataclass(frozen=True)
class Population:
    """What the metrics know besides a ranking. `train` (n_users, n_items): the interactions that the model was fitted on.
    `history` (m, n_items): the known interactions of the ranked users. `targets` (m, n_items): the items to find.
    """

    train: sp.csr_array
    history: sp.csr_array
    targets: sp.csr_array

    @cached_property
    def counts(self) -> np.ndarray:
        """Training interactions per item (n_items,)."""
        return np.bincount(self.train.indices, minlength=self.train.shape[1])

    @cached_property
    def item_group(self) -> np.ndarray:
        """The position in ITEM_GROUPS of each item (n_items,)."""
        order = np.argsort(-self.counts, kind="stable")
        before = np.cumsum(self.counts[order]) - self.counts[order]
        share = before / max(self.counts.sum(), 1)
        groups = np.empty(len(order), np.int8)
        groups[order] = np.where(share < SHORT, 3, np.where(share < LONG, 2, 1))
        groups[self.counts == 0] = 0
        return groups

    @cached_property
    def user_group(self) -> np.ndarray:
        """The position in USER_GROUPS of each ranked user (m,)."""
        known = np.diff(self.history.indptr)
        low, high = np.quantile(known, [1 / 3, 2 / 3], method="inverted_cdf")
        return np.where(known <= low, 0, np.where(known <= high, 1, 2)).astype(np.int8)

    @cached_property
    def columns(self) -> sp.csc_array:
        """`train` by items."""
        return self.train.tocsc()

    def per_group(self, rows: sp.csr_array) -> np.ndarray:
        """Number of entries (m, n_groups) of each row in each group of items."""
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        n = len(ITEM_GROUPS)
        return np.bincount(row * n + self.item_group[rows.indices], minlength=rows.shape[0] * n).reshape(-1, n)


@dataclass(frozen=True)
class Lists:
    """Lists of k items at most: `items` (m, k) int32, -1 after the end of a list; `hits` (m, k) bool."""

    items: np.ndarray
    hits: np.ndarray
    about: Population

    @cached_property
    def listed(self) -> np.ndarray:
        return self.items >= 0

    @cached_property
    def lengths(self) -> np.ndarray:
        """Items of each list (m,), 1 for an empty one, as a divisor."""
        return np.maximum(self.listed.sum(axis=1), 1)

    def mean_of(self, values: np.ndarray) -> np.ndarray:
        """Mean (m,) over the items of a list of a value per item (n_items,); 0 for an empty list."""
        return np.asarray(np.where(self.listed, values[self.items], 0).sum(axis=1) / self.lengths)


@dataclass(frozen=True)
class Ratio:
    """A sum over users divided by another one: `reached` (m,) by `possible` (m,)."""

    reached: np.ndarray
    possible: np.ndarray

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Values (m,) whose mean is the ratio, and weights (m,) with mean 1; 0 and 1 if nothing is possible."""
        mean = self.possible.mean()
        if not mean:
            return np.zeros(len(self.possible)), np.ones(len(self.possible))
        return self.reached / mean, self.possible / mean


OfLists = Callable[[Lists], np.ndarray | Ratio | float]
OF_LISTS: dict[str, OfLists] = {}
ALIASES: dict[str, tuple[str, ...]] = {}  # a word for several metrics


def of_lists(function: OfLists) -> OfLists:
    """Register a function of lists under its own name. It returns a value per user (m,), or one number for all lists."""
    OF_LISTS[function.__name__] = function
    return function


def gini_of(counts: np.ndarray) -> float:
    """Gini coefficient of counts (n,): half the mean difference of two of them, relative to their mean; 0 if all are 0."""
    n, ordered, total = len(counts), np.sort(counts), int(counts.sum())
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total)) if total else 0.0


@of_lists
def gini(lists: Lists) -> float:
    """Gini coefficient of how often each item of the catalogue is listed: 0 if all are equally often, near 1 if few are."""
    return gini_of(np.bincount(lists.items[lists.listed], minlength=lists.about.train.shape[1]))


@of_lists
def popularity_lift(lists: Lists) -> np.ndarray | Ratio:
    """(mean training interactions of the listed items - mean of the user's known items) / mean of the user's known items"""
    history, counts = lists.about.history, lists.about.counts
    known = np.diff(history.indptr)
    sums = np.add.reduceat(np.append(counts[history.indices], 0), history.indptr[:-1]) * (known > 0)
    own = sums / np.maximum(known, 1)
    return _of_known(own > 0, lists.mean_of(counts) / np.where(own > 0, own, 1) - 1)


@of_lists
def novelty(lists: Lists) -> np.ndarray:
    """Mean of -log2((n_i + 1) / (n + 1)), where n_i of n training users have item i (Vargas and Castells 2011, smoothed)"""
    n = int(np.count_nonzero(np.diff(lists.about.train.indptr)))
    return lists.mean_of(np.log2((n + 1) / (lists.about.counts + 1)))


@of_lists
def diversity(lists: Lists) -> np.ndarray:
    """1 - mean over pairs of listed items of the cosine of their columns of training interactions; 0 for fewer than two"""
    about, n = lists.about, lists.listed.sum(axis=1)
    # Of vectors of length 1, the sum has a squared length that is the sum of all cosines, those with themselves included.
    known = (lists.listed & (about.counts[lists.items] > 0)).sum(axis=1)
    cosines = (_squared_lengths(lists.items, about.columns.indptr, about.columns.indices, about.train.shape[0]) - known) / 2
    pairs = n * (n - 1) / 2
    # Columns that are equal, or have no user in common, would leave the range by a rounding.
    return np.where(pairs > 0, np.clip(1 - cosines / np.maximum(pairs, 1), 0, 1), 0.0)


@of_lists
def miscalibration(lists: Lists) -> np.ndarray | Ratio:
    """KL divergence of the shares of head, middle, tail and cold items in the list from those in the history (Steck 2018)"""
    known = lists.about.per_group(lists.about.history).astype(float)
    shown = np.stack(
        [((lists.about.item_group[lists.items] == g) & lists.listed).sum(axis=1) for g in range(len(ITEM_GROUPS))], 1
    )
    p = known / np.maximum(known.sum(axis=1, keepdims=True), 1)
    q = (1 - SMOOTHED) * shown / lists.lengths[:, None] + SMOOTHED * p
    divergence = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / np.where(p > 0, q, 1)), 0).sum(axis=1)
    return _of_known(known.sum(axis=1) > 0, divergence)


def _of_known(known: np.ndarray, values: np.ndarray) -> np.ndarray | Ratio:
    """Values (m,) of which the mean is over the `known` users, (m,) bool: others have no history to compare a list with."""
    return values if known.all() else Ratio(np.where(known, values, 0.0), known.astype(np.float64))


def _recall(hits: np.ndarray, n_targets: np.ndarray) -> Ratio:
    return Ratio(hits.sum(axis=1), n_targets)


def _ndcg(hits: np.ndarray, n_targets: np.ndarray) -> Ratio:
    k = hits.shape[1]
    gains = 1.0 / np.log2(np.arange(2, k + 2))
    return Ratio(hits @ gains, np.append(0.0, np.cumsum(gains))[np.minimum(k, n_targets)])


def _of_items(group: int, metric: Callable[[np.ndarray, np.ndarray], Ratio]) -> OfLists:
    """The metric of the targets of a group of items, over all users."""

    def of_group(lists: Lists) -> Ratio:
        about = lists.about
        return metric(lists.hits & (about.item_group[lists.items] == group), about.per_group(about.targets)[:, group])

    return of_group


def _of_users(group: int, metric: Callable[[np.ndarray, np.ndarray], Ratio]) -> OfLists:
    """The mean of the metric over a group of users."""

    def of_group(lists: Lists) -> Ratio:
        inside, whole = lists.about.user_group == group, metric(lists.hits, np.diff(lists.about.targets.indptr))
        return Ratio(np.where(inside, whole.reached / whole.possible, 0.0), inside)

    return of_group


for of_groups, groups in ((_of_items, ITEM_GROUPS), (_of_users, USER_GROUPS)):
    for position, group in enumerate(groups):
        for name, metric in (("recall", _recall), ("ndcg", _ndcg)):
            OF_LISTS[f"{name}_{group}"] = of_groups(position, metric)
ALIASES["groups"] = tuple(name for name in OF_LISTS if name.rpartition("_")[2] in ITEM_GROUPS + USER_GROUPS)
ALIASES["beyond"] = ("gini", "coverage", "popularity", "popularity_lift", "novelty", "diversity", "miscalibration")


@numba.njit(cache=True, nogil=True)
def _squared_lengths(items: np.ndarray, ptr: np.ndarray, users: np.ndarray, n_users: int) -> np.ndarray:
    """The squared length (m,) of the sum of the columns of each list's items, every column divided by its length."""
    result, total = np.zeros(len(items)), np.zeros(n_users)
    for row in range(len(items)):
        for item in items[row]:
            if item >= 0 and ptr[item] < ptr[item + 1]:
                share = 1.0 / np.sqrt(float(ptr[item + 1] - ptr[item]))
                for user in users[ptr[item] : ptr[item + 1]]:
                    total[user] += share
        # Only the users of these items: there may be many more.
        for item in items[row]:
            if item >= 0:
                for user in users[ptr[item] : ptr[item + 1]]:
                    result[row] += total[user] * total[user]
                    total[user] = 0.0
    return result
