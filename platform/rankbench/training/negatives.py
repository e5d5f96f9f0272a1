"""Sampling of negatives. A draw is a function of a key from the seed and of its position, so threads do not affect it.

uniform-all     all items with equal probability, including the positive and the user's other items
uniform-other   the items that the user has no training interaction with, with equal probability
popularity      all items, in proportion to their number of interactions to the power `popularity_power`
in-batch        the positives of the other rows of the batch, which are distributed by popularity

Shared negatives are drawn once for all rows of a batch. Each row has the same distribution of negatives either way, so its loss
and gradient have the same expectation. But the rows of a batch are no longer independent, and its gradient has a larger
variance. For uniform-other, items are drawn from the whole catalogue, and where a row's user has one of them, another item that
the user does not have is drawn in its place, for this row alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.core.errors import DataError
from rankbench.core.rng import stream
from rankbench.core.splitmix import below, bits
from rankbench.kernels.parallel import in_parallel
from rankbench.training.device_negatives import OtherItems, by_weight, uniform

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
        raise DataError(f"user {user} has all {n_items} items: no negative is left; use sampler=uniform-all")


class NegativeSampler:
    """A sampler for the users of X (n_users, n_items), 0/1 CSR with sorted columns.

    Raises DataError if `kind` is uniform-other and a user has interactions with every item.
    """

    def __init__(
        self, X: sp.csr_array, kind: Sampler, n: int, shared: bool, power: float = 1.0, device: torch.device | None = None
    ):
        self.X, self.kind, self.n, self.shared = X, kind, n, shared
        self.device = device if device is not None and not compiled(device) else None  # None: the compiled loops
        self.others = OtherItems(X, self.device) if self.device and kind == "uniform-other" else None
        self.n_items = X.shape[1]
        if kind == "uniform-other":
            require_other_items(X)
            self.degree = np.diff(X.indptr)
        if kind in ("popularity", "in-batch"):
            # The items of a batch are distributed by their interactions, whatever the power is.
            weight = np.bincount(X.indices, minlength=self.n_items) ** (1.0 if kind == "in-batch" else power)
            self.cumulative = np.cumsum(weight)
            self.cumulative /= self.cumulative[-1]  # exactly 1 at the end, so that no item of weight 0 can be drawn there
            with np.errstate(divide="ignore"):
                self.logp = np.log(weight / weight.sum())
            if self.device:
                self.on_device = [torch.from_numpy(array).to(self.device) for array in (self.cumulative, self.logp)]

    def draw(self, seed: int, epoch: int, batch: int, users: np.ndarray, items: np.ndarray) -> Negatives:
        """Draw negatives for the rows (users[b], items[b]) of a batch, int64 (B,)."""
        keys = stream(seed, "negatives", epoch, batch)
        key = keys.integers(0, 2**63, dtype=np.uint64)
        shape = (1 if self.shared else len(users), self.n)
        if self.kind == "in-batch":
            return Negatives(items[None], self.logp[items][None], self.logp[items])
        if self.kind == "uniform-other" and self.shared:
            return self._draw_shared_others(key, keys.integers(0, 2**63, dtype=np.uint64), users)
        if self.device:
            return self._draw_there(int(key), shape, users, items)
        if self.kind == "popularity":
            drawn = np.empty(shape, np.int64)
            in_parallel(_by_weight, drawn.size, drawn.size, key, self.cumulative, drawn.reshape(-1))
            return Negatives(drawn, self.logp[drawn], self.logp[items])
        drawn = np.empty(shape, np.int64)
        if self.kind == "uniform-all":
            in_parallel(_uniform, drawn.size, drawn.size, key, self.n_items, drawn.reshape(-1))
            return Negatives(drawn, np.full((1, 1), -np.log(self.n_items)), np.full(len(users), -np.log(self.n_items)))
        given = key, self.n_items, users, self.X.indptr, self.X.indices, drawn
        in_parallel(_uniform_other, len(users), drawn.size, *given)
        logq = -np.log(self.n_items - self.degree[users])
        return Negatives(drawn, logq[:, None], logq, own=False)

    def _draw_shared_others(self, key: np.uint64, key_of_others: np.uint64, users: np.ndarray) -> Negatives:
        drawn = np.empty((1, self.n), np.int64)
        in_parallel(_uniform, drawn.size, drawn.size, key, self.n_items, drawn[0])
        rows, columns = _own_among(self.X, users, drawn[0])
        others = np.empty(len(rows), np.int64)
        given = key_of_others, self.n_items, users[rows], self.X.indptr, self.X.indices, rows * self.n + columns, others
        in_parallel(_one_other, len(rows), len(rows), *given)
        logq = -np.log(self.n_items - self.degree[users])
        return Negatives(drawn, logq[:, None], logq, own=False, replaced=Replaced(rows, columns, others))

    def _draw_there(self, key: int, shape: tuple[int, int], users: np.ndarray, items: np.ndarray) -> Negatives:
        if self.kind == "popularity":
            cumulative, logp = self.on_device
            drawn = by_weight(key, cumulative, shape)
            return Negatives(drawn, logp[drawn], self.logp[items])
        if self.kind == "uniform-all":
            drawn = uniform(key, self.n_items, shape, self.device)
            return Negatives(drawn, np.full((1, 1), -np.log(self.n_items)), np.full(len(users), -np.log(self.n_items)))
        drawn = self.others.draw(key, torch.from_numpy(users).to(self.device), self.n)
        logq = -np.log(self.n_items - self.degree[users])
        return Negatives(drawn, logq[:, None], logq, own=False)


def drawn_positives(seed: int, epoch: int, batch: int, X: sp.csr_array, users: np.ndarray, m: int) -> np.ndarray:
    """Draw m of each user's own items, uniformly and with replacement, int64 (B, m)."""
    key = stream(seed, "extra positives", epoch, batch).integers(0, 2**63, dtype=np.uint64)
    drawn = np.empty((len(users), m), np.int64)
    in_parallel(_own, len(users), drawn.size, key, users, X.indptr, X.indices, drawn)
    return drawn


def _own_among(X: sp.csr_array, users: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns, (t,) int64, where drawn[column] (n,) is an item of users[row] (B,)."""
    order, own = np.argsort(drawn, kind="stable"), X[users]
    ascending = drawn[order]
    first = np.searchsorted(ascending, own.indices, "left")
    times = np.searchsorted(ascending, own.indices, "right") - first
    rows = np.repeat(np.arange(len(users)), np.diff(own.indptr))
    # The places of each item among the drawn ones, one after another.
    places = np.arange(times.sum()) + np.repeat(first - (np.cumsum(times) - times), times)
    return np.repeat(rows, times), order[places]


@numba.njit(nogil=True, cache=True)
def _uniform(key, n_items, out, start, stop):
    for s in range(start, stop):
        out[s] = below(bits(key, s), n_items)


@numba.njit(nogil=True, cache=True)
def _by_weight(key, cumulative, out, start, stop):
    for s in range(start, stop):
        share = (bits(key, s) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        out[s] = min(np.searchsorted(cumulative, share, side="right"), len(cumulative) - 1)


@numba.njit(nogil=True, cache=True)
def _own(key, users, indptr, indices, out, start, stop):
    m = out.shape[1]
    for b in range(start, stop):
        first, degree = indptr[users[b]], indptr[users[b] + 1] - indptr[users[b]]
        for k in range(m):
            out[b, k] = indices[first + below(bits(key, b * m + k), degree)]


@numba.njit(nogil=True, cache=True)
def _uniform_other(key, n_items, users, indptr, indices, out, start, stop):
    """Draw items that the user has no interaction with, by rejection; after a rejection, new bits are derived from the last."""
    n = out.shape[1]
    excluded = np.zeros(n_items, np.bool_)
    for b in range(start, stop):
        own_items = indices[indptr[users[b]] : indptr[users[b] + 1]]
        for item in own_items:
            excluded[item] = True
        for k in range(n):
            random = bits(key, b * n + k)
            item = below(random, n_items)
            while excluded[item]:
                random = bits(random, k)
                item = below(random, n_items)
            out[b, k] = item
        for item in own_items:
            excluded[item] = False


@numba.njit(nogil=True, cache=True)
def _one_other(key, n_items, users, indptr, indices, position, out, start, stop):
    """Draw for each of `users` (t,) an item that it has no interaction with, by rejection; `position` numbers the draws."""
    for t in range(start, stop):
        own = indices[indptr[users[t]] : indptr[users[t] + 1]]
        random = bits(key, position[t])
        item = below(random, n_items)
        while _is_in(item, own):
            random = bits(random, position[t])
            item = below(random, n_items)
        out[t] = item


@numba.njit(nogil=True, cache=True)
def _is_in(item, ascending):
    at = np.searchsorted(ascending, item)
    return at < len(ascending) and ascending[at] == item
