"""`losses.others.Others` over the whole catalogue, for rows that are all interactions of a block of users.

Every sum over the items is computed once per user and then copied to the user's rows. On the CPU, the kernels of
`kernels/` compute it without an array of all scores; elsewhere, and for functions that they do not have, PyTorch computes it in
parts of that array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus
from torch.utils.checkpoint import checkpoint

from rankbench.core.devices import compiled
from rankbench.core.errors import require
from rankbench.kernels.catalogue_sum import catalogue_sum, kth_largest, parts_of, without
from rankbench.kernels.score_tiles import EXP, RELU, SIGMOID, SIGMOID_POWER, SOFTPLUS, SOFTPLUS_OF_SIGMOID
from rankbench.kernels.transfer import on_device
from rankbench.losses.others import OwnItems

_LARGEST_EXPONENT = 40.0  # exponents up to this size need no shift, in float32 either
_SMALLEST = 1e-30  # a sum whose terms, and their products with gradients, are normal numbers in float32


class Instead(NamedTuple):
    """Items that count for single users in the place of others: their scores `values` (t,), the users they count for, `group`
    (t,) int64, and their indices `ids` (t,) int64.
    """

    values: Tensor
    group: Tensor
    ids: Tensor


@dataclass
class UserCatalogue:
    """The scores of `users` (m, d) with `items` (n_items, d); row b of the batch belongs to user `of[b]`, (B,) int64.

    `own` are the scores of the users' own items. With `left_out`, these items do not count, except in `kth_largest`; `indptr`
    and `indices` then list them, in ascending order per user. `instead` has items that count in their
    place. `largest` is a bound of the scores' sizes, if one is known.
    """

    users: Tensor
    items: Tensor
    of: Tensor
    own: OwnItems
    indptr: np.ndarray
    indices: np.ndarray
    left_out: bool
    largest: float | None = None
    instead: Instead | None = None
    _thresholds: dict[int, Tensor] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return True

    @property
    def n(self) -> float | Tensor:
        return self._counts()[self.of] if self.left_out else len(self.items)

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        if not compiled(self.users.device):
            return self._of_scores(lambda s, rows: torch.logsumexp(s / tau, dim=1), self._left_out())[self.of]
        # The largest score would do for the bound, but it takes a pass of its own.
        shift = None if self.bound / tau <= _LARGEST_EXPONENT else self._largest_that_counts() / tau
        sums = self._with_instead(self._sum(EXP, shift, 1 / tau), lambda s, shift=0.0: (s / tau - shift).exp(), shift).log()
        return (sums if shift is None else sums + shift)[self.of]

    @property
    def bound(self) -> float:
        """A bound of the scores' sizes."""
        if self.largest is not None:
            return self.largest
        bound = float(self.users.detach().norm(dim=1).max() * self.items.detach().norm(dim=1).max())
        further = None if self.instead is None else self.instead.values.detach().abs()
        return bound if further is None or not len(further) else max(bound, float(further.max()))

    def moments(self) -> tuple[Tensor, Tensor]:
        n = len(self.items)
        total = self.users @ self.items.sum(dim=0)
        squares = ((self.users @ (self.items.T @ self.items)) * self.users).sum(dim=1)
        if not self.left_out:
            return (total / n)[self.of], (squares / n)[self.of]
        values, group, counts = self.own.values, self.own.group, self._counts()
        total, squares = total.index_add(0, group, -values), squares.index_add(0, group, -values.square())
        total, squares = self._with_instead(total, lambda s: s), self._with_instead(squares, torch.square)
        return (total / counts)[self.of], (squares / counts)[self.of]

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._mean(SOFTPLUS, shift, softplus)

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._mean(RELU, shift, torch.relu)

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        shift = self._of_users(shift)
        if compiled(self.users.device):
            # The kernel adds up the powers themselves, which are all too small where every score is far below the shift.
            sums = self._sum(SIGMOID_POWER, shift, 1 / inner, 1 / tau)
            sums = self._with_instead(sums, lambda s, shift: (logsigmoid(s / inner - shift) / tau).exp(), shift)
            if sums.detach().amin() > _SMALLEST:
                return sums.log()[self.of]

        def of_scores(s: Tensor, rows: slice) -> Tensor:
            return torch.logsumexp(logsigmoid(s / inner - shift[rows, None]) / tau, dim=1)

        logs = self._of_scores(of_scores, self._left_out())
        if self.instead is not None:
            values, group = self.instead.values, self.instead.group
            further = logsigmoid(values / inner - shift[group]) / tau
            top = logs.detach().scatter_reduce(0, group, further.detach(), "amax")
            logs = top + (logs - top).exp().index_add(0, group, (further - top[group]).exp()).log()
        return logs[self.of]

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        shift = self._of_users(shift)
        sums = self._sum(SIGMOID, shift, 1 / inner)
        return self._with_instead(sums, lambda s, shift: torch.sigmoid(s / inner - shift), shift)[self.of]

    def mean_softplus_of_sigmoid(self, square: float, slope: Tensor, shift: Tensor, inner: float = 1.0) -> Tensor:
        def of_sigmoid(s: Tensor, shift: Tensor) -> Tensor:
            share = torch.sigmoid(s / inner)
            return softplus(square * share.square() + slope * share - shift)

        shift = self._of_users(shift)
        sums = self._with_instead(self._sum(SOFTPLUS_OF_SIGMOID, shift, 1 / inner, slope, square), of_sigmoid, shift)
        return (sums / self._counts())[self.of]

    def tilted(self, tau: float, users: Tensor, items: Tensor, instead: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """By longer vectors: s / tau + a · c is the product of (u / tau, a) and (v, c). `instead` (t, d) are the vectors c of
        the items that count in the place of others.
        """
        users = users[self._first_rows()]
        both = torch.cat([self.users / tau, users], dim=1), torch.cat([self.items, items], dim=1)
        scores = tilt = None
        if self.instead is not None and instead is not None:
            tilt = (users[self.instead.group] * instead).sum(dim=1)
            scores = self.instead.values / tau + tilt
        return self._with(*both, scores).logsumexp(), self._with(users, items, tilt).logsumexp()

    def mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        sums = self._of_scores(lambda s, rows: function(s).sum(dim=1))
        if self.left_out:
            sums = sums.index_add(0, self.own.group, -function(self.own.values))
        return (self._with_instead(sums, function) / self._counts())[self.of]

    def detached(self) -> UserCatalogue:
        own, instead = (each and each._replace(values=each.values.detach()) for each in (self.own, self.instead))
        return replace(self, users=self.users.detach(), items=self.items.detach(), own=own, instead=instead)

    def _with(self, users: Tensor, items: Tensor, values: Tensor | None) -> UserCatalogue:
        instead = self.instead and self.instead._replace(values=values)
        return replace(self, users=users, items=items, largest=None, instead=instead, _thresholds={})

    def _with_instead(self, sums: Tensor, function: Callable[..., Tensor], shift: Tensor | None = None) -> Tensor:
        """Sums (m,) per user, with `function(s, shift)` of the scores s of the items that count in the place of others."""
        if self.instead is None:
            return sums
        group = self.instead.group
        each = function(self.instead.values, *([] if shift is None else [shift[group]]))
        return sums.index_add(0, group, each)

    def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        require(not self.left_out, "s.others.of_all counts the user's own items: use sampler=uniform-all, or s.others.mean")
        return self._of_scores(lambda s, rows: function(s))[self.of]

    def _of_scores(
        self, function: Callable[[Tensor, slice], Tensor], left_out: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Tensor:
        """A number per user, (m,), by a function of the scores of some users at a time, and of their slice; what is left out
        has so low a score that it does not count.
        """

        def of_part(users: Tensor, rows: slice, own: tuple[Tensor, ...] | None) -> Tensor:
            return function(without(users @ self.items.T, own), rows)

        parts = parts_of(self.users, len(self.items), left_out)
        return torch.cat([checkpoint(of_part, self.users[rows], rows, own, use_reentrant=False) for rows, own in parts])

    def kth_largest(self, k: int) -> Tensor:
        return self._largest(k)[self.of]

    def _counts(self) -> Tensor:
        """Number of items that count, per user."""
        own = np.diff(self.indptr) if self.left_out and self.instead is None else np.zeros(len(self.indptr) - 1)
        return on_device(len(self.items) - own, self.users.device).to(self.users)

    def _mean(self, kind: int, shift: Tensor | float, function: Callable[[Tensor], Tensor]) -> Tensor:
        shift = self._of_users(shift)
        sums = self._with_instead(self._sum(kind, shift), lambda s, shift: function(s - shift), shift)
        return (sums / self._counts())[self.of]

    def _of_users(self, shift: Tensor | float) -> Tensor:
        """The shift per user (m,) from one per row (B,), or for all.

        Raises ConfigError if it differs among the rows of a user. On a GPU, where a step that reads a value waits, all are NaN
        instead, with which the fit ends.
        """
        if not isinstance(shift, Tensor) or shift.ndim == 0:
            return torch.as_tensor(shift, dtype=self.users.dtype, device=self.users.device).expand(len(self.users))
        per_user = shift[self._first_rows()]
        differ = ((per_user[self.of] != shift) & shift.isfinite()).any()  # of a fit that diverged, nothing is said here
        require(
            not differ.is_cpu or not differ.item(),
            "objective=catalogue has one sum per user, and this loss shifts the scores of each row: use sampled",
        )
        return per_user.masked_fill(differ, torch.nan)

    def _first_rows(self) -> Tensor:
        """The first row of each user, (m,)."""
        first = torch.full((len(self.users),), len(self.of), device=self.of.device)
        return first.scatter_reduce(0, self.of, torch.arange(len(self.of), device=self.of.device), "amin")

    def _sum(
        self, kind: int, shift: Tensor | None, scale: float = 1.0, power: float | Tensor = 1.0, square: float = 0.0
    ) -> Tensor:
        shift = torch.zeros_like(self.users[:, 0]) if shift is None else shift
        return catalogue_sum(self.users, self.items, shift, kind, scale, power, self._left_out(), square)

    def _left_out(self) -> tuple[np.ndarray, np.ndarray] | None:
        return (self.indptr, self.indices) if self.left_out else None

    def _largest_that_counts(self) -> Tensor:
        if not self.left_out:
            return self._largest(1)
        with torch.no_grad():
            found = self._of_scores(lambda s, rows: s.amax(dim=1), self._left_out())
        if self.instead is None:
            return found
        return found.scatter_reduce(0, self.instead.group, self.instead.values.detach(), "amax")

    def _largest(self, k: int) -> Tensor:
        if k not in self._thresholds:
            self._thresholds[k] = kth_largest(self.users.detach(), self.items.detach(), k)
        return self._thresholds[k]
