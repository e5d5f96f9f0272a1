"""The items that a row's positive is compared with, and sums of functions of their scores.

A loss that reads these items only through `Others` can be computed on sampled items and on the whole catalogue: the sums over
the catalogue are the same for all rows of a user, and need no array of all scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from rankbench.core.lazy import Lazy


class Others(Protocol):
    """The scores s_j of n items per row, for B rows. Gradients flow through every method but `kth_largest`."""

    @property
    def n(self) -> float | Tensor:
        """The number of items: one for all rows, or (B,)."""

    @property
    def complete(self) -> bool:
        """Whether these are all items, or all but the user's own."""

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        """log Σ_j exp(s_j / tau), (B,)."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """The mean and the mean square of each row's scores, (B,) each."""

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        """The mean of softplus(s_j − shift) over j, (B,), for a shift per row (B,) or for all."""

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        """The mean of [s_j − shift]₊ over j, (B,), for a shift per row (B,) or for all."""

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        """log Σ_j σ(s_j / inner − shift)^(1/tau), (B,), for a shift per row (B,)."""

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        """Σ_j σ(s_j / inner − shift), (B,), for a shift per row (B,)."""

    def mean_softplus_of_sigmoid(self, square: float, slope: Tensor, shift: Tensor, inner: float = 1.0) -> Tensor:
        """The mean of softplus(square · σ² + slope · σ − shift) over j, (B,), for σ = σ(s_j / inner), one slope and shift."""

    def tilted(self, tau: float, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """log Σ_j exp(s_j / tau + a · c_j) and log Σ_j exp(a · c_j), (B,) each, for vectors a of the rows' users, (B, d), and c
        of all items, (n_items, d).
        """

    def mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of an elementwise function over s_j, (B,), for functions that no other method has."""

    def detached(self) -> Others:
        """The same scores without gradients."""

    def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of arrays of scores (rows, n) that gives one number per row, (B,)."""

    def kth_largest(self, k: int) -> Tensor | None:
        """The k-th largest score of the row's user among all items, (B,); None if not all items are known."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores that are held in memory: `values` (B, n), or a function that computes them when they are first read.

    `ids` are the indices of the items, (B, n), or (1, n) if rows share them.
    """

    values: Lazy[Tensor] = Lazy()
    ids: Lazy[Tensor | None] = Lazy(None)
    complete = False

    @property
    def n(self) -> float:
        return self.values.shape[1]

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        return torch.logsumexp(self.values / tau, dim=1)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.values.mean(dim=1), self.values.square().mean(dim=1)

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        return softplus(self.values - _column(shift)).mean(dim=1)

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        return torch.relu(self.values - _column(shift)).mean(dim=1)

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        return torch.logsumexp(logsigmoid(self.values / inner - _column(shift)) / tau, dim=1)

    def kth_largest(self, k: int) -> Tensor | None:
        return None

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        return torch.sigmoid(self.values / inner - shift[:, None]).sum(dim=1)

    def mean_softplus_of_sigmoid(self, square: float, slope: Tensor, shift: Tensor, inner: float = 1.0) -> Tensor:
        share = torch.sigmoid(self.values / inner)
        return softplus(square * share.square() + slope * share - shift).mean(dim=1)

    def tilted(self, tau: float, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        tilt = self._products(users, items)
        return torch.logsumexp(self.values / tau + tilt, dim=1), torch.logsumexp(tilt, dim=1)

    def _products(self, users: Tensor, items: Tensor) -> Tensor:
        """users[b] · items[j], (B, n), for the items j of each row."""
        if len(self.ids) == 1:
            return users @ items[self.ids[0]].T
        return torch.einsum("bd,bnd->bn", users, items[self.ids])

    def mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(self.values).mean(dim=1)

    def detached(self) -> ScoreTable:
        return type(self)(lambda: self.values.detach(), lambda: self.ids)

    def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(self.values)

    def above(self, shift: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of [s_j − shift]₊, of s_j − shift, and of 1 where s_j > shift, (B,) each, for a shift per row, with a `weight`
        (B, n) or (1, n) of each score. Without gradients.
        """
        y = self.values.detach() - shift[:, None]
        hinges, ones = y.clamp(min=0), (y > 0).to(y.dtype)
        each = (hinges, y, ones) if weight is None else (weight * hinges, weight * y, weight * ones)
        return each[0].sum(dim=1), each[1].sum(dim=1), each[2].sum(dim=1)

    def smooth_precision(self, pos: Tensor, K: int, tau: float, delta: float, together: bool = False) -> Tensor:
        """The mean over ranks 1 to K of SmoothI's indicator of an item with the scores `pos` among these items, (B,). A rank
        lowers each score by its own indicator, or all `together` by that of the item.
        """
        scores = torch.cat([pos[:, None], self.values], dim=1)
        scores = (scores - scores.amin(dim=1, keepdim=True)) / tau  # nonnegative, so that a factor c < 1 lowers them
        left = torch.ones_like(scores)
        precision = torch.zeros_like(pos)
        for _ in range(K):
            indicator = torch.softmax(scores * left, dim=1)
            precision = precision + indicator[:, 0] / K
            taken = indicator[:, :1] if together else indicator
            left = left * (1 - taken.detach() - delta)
        return precision


class OwnItems(NamedTuple):
    """The scores of all items of each row's user: `values` (T,) with their groups (T,) int64; row b has the group `of[b]`."""

    values: Tensor
    group: Tensor
    of: Tensor
    n_groups: int

    def sum(self, x: Tensor) -> Tensor:
        """The sums of numbers x (T,), one for each of the values, over the items of each row's user, (B,)."""
        return self._sums(x)[self.of]

    def logmeanexp(self, tau: float) -> Tensor:
        x = self.values / tau
        top = torch.full((self.n_groups,), -torch.inf, dtype=x.dtype, device=x.device)
        top = top.scatter_reduce(0, self.group, x.detach(), "amax")
        return (top + self._mean((x - top[self.group]).exp()).log())[self.of]

    def mean_square(self) -> Tensor:
        return self._mean(self.values.square())[self.of]

    def mean_relu(self, shift: float) -> Tensor:
        return self._mean(torch.relu(self.values - shift))[self.of]

    def _mean(self, x: Tensor) -> Tensor:
        return self._sums(x) / self._sums(torch.ones_like(x))

    def _sums(self, x: Tensor) -> Tensor:
        # As `torch.bincount` does, which on a GPU waits for the largest group.
        return x.new_zeros(self.n_groups).index_add(0, self.group, x)


class DrawnItems(ScoreTable):
    """As `OwnItems`, estimated from items drawn from those of the row's user, whose scores are `values` (B, m)."""

    def logmeanexp(self, tau: float) -> Tensor:
        return self.logsumexp(tau) - math.log(self.n)

    def mean_square(self) -> Tensor:
        return self.moments()[1]


def _column(shift: Tensor | float) -> Tensor | float:
    return shift[:, None] if isinstance(shift, Tensor) and shift.ndim else shift
