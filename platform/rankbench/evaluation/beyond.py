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
        """`train` by items, with the users of each item in increasing order."""
        columns = self.train.tocsc()
        columns.sort_indices()
        return columns

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
    columns = lists.about.columns
    return _diversity(lists.items, columns.indptr, columns.indices, columns.shape[0])


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


@numba.njit(cache=True)
def _ones(word: np.uint64) -> int:
    """The number of ones in a word: sums of pairs, of fours and of eights of bits, which a product adds up."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@numba.njit(cache=True)
def _bits_of_popular_items(ptr: np.ndarray, users: np.ndarray, n_users: int) -> tuple[np.ndarray, np.ndarray]:
    """A bit per user (n_popular, n_words) for the items with more users than words, and their rows (n_items,), -1 for others.

    They take at most 8 bytes per interaction.
    """
    n_words = (n_users + 63) // 64
    row_of, n = np.full(len(ptr) - 1, -1), 0
    for i in range(len(row_of)):
        if ptr[i + 1] - ptr[i] > n_words:
            row_of[i] = n
            n += 1
    bits = np.zeros((n, n_words), np.uint64)
    for i in range(len(row_of)):
        if row_of[i] >= 0:
            for user in users[ptr[i] : ptr[i + 1]]:
                bits[row_of[i], user >> 6] |= np.uint64(1) << np.uint64(user & 63)
    return row_of, bits


@numba.njit(cache=True)
def _users_of_both(i: int, j: int, ptr: np.ndarray, users: np.ndarray, row_of: np.ndarray, bits: np.ndarray) -> int:
    """The number of users that two items have in common: by bits where both are popular or one is, else in order."""
    both = 0
    if row_of[i] >= 0 and row_of[j] >= 0:
        for word in range(bits.shape[1]):
            both += _ones(bits[row_of[i], word] & bits[row_of[j], word])
        return both
    if row_of[i] >= 0 or row_of[j] >= 0:
        popular, other = (row_of[i], j) if row_of[i] >= 0 else (row_of[j], i)
        for user in users[ptr[other] : ptr[other + 1]]:
            both += int(np.int64((bits[popular, user >> 6] >> np.uint64(user & 63)) & np.uint64(1)))
        return both
    x, y = ptr[i], ptr[j]
    while x < ptr[i + 1] and y < ptr[j + 1]:
        if users[x] == users[y]:
            both += 1
            x += 1
            y += 1
        elif users[x] < users[y]:
            x += 1
        else:
            y += 1
    return both


@numba.njit(cache=True, nogil=True)
def _diversity(items: np.ndarray, ptr: np.ndarray, users: np.ndarray, n_users: int) -> np.ndarray:
    result = np.zeros(len(items))
    row_of, bits = _bits_of_popular_items(ptr, users, n_users)
    for row in range(len(items)):
        total, pairs = 0.0, 0
        for a in range(items.shape[1]):
            i = items[row, a]
            if i < 0:
                continue
            for b in range(a + 1, items.shape[1]):
                j = items[row, b]
                if j < 0:
                    continue
                pairs += 1
                both = _users_of_both(i, j, ptr, users, row_of, bits)
                if both:
                    total += both / np.sqrt(float(ptr[i + 1] - ptr[i]) * float(ptr[j + 1] - ptr[j]))
        if pairs:
            result[row] = 1.0 - total / pairs
    return result
