"""Sampling of negatives, in one of four ways.

uniform-all     all items with equal probability, including the positive and the user's other items
uniform-other   the items that the user has no training interaction with, with equal probability
popularity      all items, in proportion to their number of interactions to the power `popularity_power`
in-batch        the positives of the other rows of the batch, which are distributed by popularity

Shared negatives are drawn once for all rows of a batch. Each row has the same distribution of negatives either way, so its loss
and gradient have the same expectation. But the rows of a batch are no longer independent, and its gradient has a larger
variance. For uniform-other, items are drawn from the whole catalogue, and where a row's user has one of them, another item that
the user does not have is drawn in its place, for the rows of this user alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.core.errors import DataError
from rankbench.core.rng import stream
from rankbench.training.draws import OtherItems, by_weight, uniform

Sampler = Literal["uniform-all", "uniform-other", "popularity", "in-batch"]


@dataclass(frozen=True)
class Replaced:
    """Items that replace shared negatives in single rows: `items[t]` that at columns[t], in row rows[t], int64 (t,)."""

    rows: np.ndarray
    columns: np.ndarray
    items: np.ndarray

    def of_rows(self, rows: np.ndarray, n: int) -> Replaced:
        place = np.full(n, -1)
        place[rows] = np.arange(len(rows))
        at = place[self.rows]
        return Replaced(at[at >= 0], self.columns[at >= 0], self.items[at >= 0])


@dataclass(frozen=True)
class Negatives:
    """Negatives `items` int64, (B, n), or (1, n) if all rows share them: an array, or a tensor on the device of the fit.

    `logq` are the log probabilities of the draws, of a shape that broadcasts to (B, n), and `logq_pos` (B,) those of the
    positives under the same distribution. `own` says whether the distribution has the user's own items, too. `replaced` are
    the shared negatives that some rows do not have.
    """

    items: np.ndarray | Tensor
    logq: np.ndarray | Tensor
    logq_pos: np.ndarray
    own: bool = True
    replaced: Replaced | None = None

    def of_rows(self, rows: np.ndarray, n: int) -> Negatives:
        """Those of some of the n rows, at positions `rows` (m,) int64."""
        items, logq = (each[rows] if len(each) == n else each for each in (self.items, self.logq))
        return Negatives(items, logq, self.logq_pos[rows], self.own, self.replaced and self.replaced.of_rows(rows, n))


def require_other_items(X: sp.csr_array) -> None:
    """Raise DataError if a user has interactions with every item, so that no negative is left."""
    degree, n_items = np.diff(X.indptr), X.shape[1]
    if (degree >= n_items).any():
        user = int(np.argmax(degree >= n_items))
        who = f"the user in row {user} (from 0) of the training matrix"
        raise DataError(f"{who} has all {n_items} items: no negative is left; use sampler=uniform-all")


class NegativeSampler:
    """A sampler for the users of X (n_users, n_items), 0/1 CSR with sorted columns.

    Raises DataError if `kind` is uniform-other and a user has interactions with every item.
    """

    def __init__(
        self, X: sp.csr_array, kind: Sampler, n: int, shared: bool, power: float = 1.0, device: torch.device | None = None
    ):
        self.X, self.kind, self.n, self.shared, self.n_items = X, kind, n, shared, X.shape[1]
        self.device = device if device is not None and not compiled(device) else None  # None: the compiled loops
        if kind == "uniform-other":
            require_other_items(X)
            self.others, self.degree = OtherItems(X, self.device), np.diff(X.indptr)
        if kind in ("popularity", "in-batch"):
            # The items of a batch are distributed by their interactions, whatever the power is.
            weight = np.bincount(X.indices, minlength=self.n_items) ** (1.0 if kind == "in-batch" else power)
            cumulative = np.cumsum(weight)
            cumulative /= cumulative[-1]  # exactly 1 at the end, so that no item of weight 0 can be drawn there
            with np.errstate(divide="ignore"):
                self.logp = np.log(weight / weight.sum())
            self.there = [torch.from_numpy(each).to(self.device) if self.device else each for each in (cumulative, self.logp)]

    def draw(
        self, seed: int, epoch: int, batch: int, users: np.ndarray, items: np.ndarray, there: Tensor | None = None
    ) -> Negatives:
        """Draw negatives for the rows (users[b], items[b]) of a batch, int64 (B,); `there`: users on the device."""
        keys = stream(seed, "negatives", epoch, batch)
        key = keys.integers(0, 2**63, dtype=np.uint64)
        shape = (1 if self.shared else len(users), self.n)
        if self.kind == "in-batch":
            return Negatives(items[None], self.logp[items][None], self.logp[items])
        if self.kind == "popularity":
            cumulative, logp = self.there
            drawn = by_weight(key, cumulative, shape)
            return Negatives(drawn, logp[drawn], self.logp[items])
        if self.kind == "uniform-all":
            drawn, logq = uniform(key, self.n_items, shape, self.device), -np.log(self.n_items)
            return Negatives(drawn, np.full((1, 1), logq), np.full(len(users), logq))
        if self.shared:
            drawn, replaced = self._shared_others(key, keys.integers(0, 2**63, dtype=np.uint64), users)
        else:
            drawn, replaced = self.others.draw(key, users if there is None else there, self.n), None
        logq = -np.log(self.n_items - self.degree[users])
        return Negatives(drawn, logq[:, None], logq, own=False, replaced=replaced)

    def _shared_others(self, key: np.uint64, key_of_others: np.uint64, users: np.ndarray) -> tuple[np.ndarray, Replaced]:
        drawn = np.asarray(uniform(key, self.n_items, (1, self.n)))
        rows, columns = _own_among(self.X, users, drawn[0])
        others = self.others.draw_one(key_of_others, users[rows], users[rows] * self.n + columns)
        return drawn, Replaced(rows, columns, others)


def _own_among(X: sp.csr_array, users: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns, (t,) int64, where drawn[column] (n,) is an item of users[row] (B,)."""
    order, own = np.argsort(drawn, kind="stable"), X[users]
    found, first, times = np.unique(drawn[order], return_index=True, return_counts=True)
    number = np.full(X.shape[1], -1, np.int32)  # of each item among those that are found
    number[found] = np.arange(len(found))
    of = number[own.indices]
    met = np.flatnonzero(of >= 0)
    rows, of = np.searchsorted(own.indptr, met, "right") - 1, of[met]
    # The places of each item among the drawn ones, one after another.
    each, start = times[of], first[of]
    places = np.arange(each.sum()) + np.repeat(start - (np.cumsum(each) - each), each)
    return np.repeat(rows, each), order[places]
