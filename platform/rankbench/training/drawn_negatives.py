"""The negatives of a batch for its loss: scores, indices and log probabilities, each computed when the loss first reads it.

Rows have negatives of their own (`Drawn`), share all of them (`Shared`), share them but for those that are a row's own items
(`Replacing`), or are each other's negatives (`InBatch`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.kernels.neighbours import Precision
from rankbench.kernels.rows import pair_dot, take_rows
from rankbench.kernels.transfer import on_device
from rankbench.losses.others import OwnItems
from rankbench.training.batches import Batch, Rows
from rankbench.training.catalogue import product
from rankbench.training.row_scores import Products
from rankbench.training.sampled_scores import SampledScores
from rankbench.training.user_catalogue import Instead, UserCatalogue

_MOSTLY = 0.9  # share of different users in a batch above which copying products costs more than computing them twice
_NONE = np.zeros(0, np.int64)


@dataclass
class Drawn:
    """The negatives of B rows whose scores `by` computes.

    `pos` (B,) are the scores of the rows' own items. If rows have the vectors of their users, `of` has a table of these and the
    position in it of each row's user. `positions`, (B, n) or (1, n), are those of the negatives among `items`, and `dots`
    (B, n) their products, or None if they are computed only if they are read.
    """

    batch: Batch
    items: Rows
    by: Products
    pos: Tensor
    of: tuple[Tensor, Tensor] | None
    positions: Tensor
    dots: Tensor | None
    precision: Precision

    @cached_property
    def drawn(self) -> Tensor:
        return on_device(self.batch.negatives.items, self.pos.device)

    def sums(self) -> SampledScores:
        """Sums over the scores."""
        return SampledScores(lambda: self.values, ids=lambda: self.ids)

    @cached_property
    def values(self) -> Tensor:
        """The scores, (B, n)."""
        with torch.enable_grad():  # the first to read them may want no gradient, but those that follow may
            return self.of_rows(self.by.similarities(self.products(), self.positions))

    def products(self) -> Tensor:
        return self.dots

    def of_rows(self, scores: Tensor) -> Tensor:
        """The scores (B, n) of what was drawn, as those of each row's own list."""
        return scores

    @cached_property
    def ids(self) -> Tensor:
        """The indices of the items, (B, n), or (1, n) if all rows share all of them."""
        return self.drawn

    @cached_property
    def logq(self) -> Tensor:
        """The log probabilities of the draws, (B, n) or (1, n)."""
        logq = on_device(self.batch.negatives.logq, self.pos.device).to(self.pos)
        return logq.expand(1 if len(logq) == 1 else len(self.pos), self.drawn.shape[1])

    def rival(self, k: Tensor) -> Tensor:
        """The similarity of each row's item and its k[b]-th negative, (B,), for k (B,) int64."""
        chosen = self.ids.expand(len(self.pos), -1).gather(1, k[:, None])[:, 0]
        _, own = self.batch.on(self.pos.device)
        return self.by.between(self.items.positions(own), self.items.positions(chosen))


class Shared(Drawn):
    """All rows have the same negatives: the product of a user in several rows is computed once, and kernels compute sums."""

    def sums(self) -> SampledScores:
        if self.dots is not None or self.precision != "float32" or not self.by.by_kernels:
            return super().sums()
        sides = {"by_row": lambda: self.by_row, "by_user": lambda: self.by_user}
        return SharedScores(lambda: self.values, ids=lambda: self.ids, drawn=self.drawn[0], counted=self.n, **sides)

    @property
    def n(self) -> int:
        """Number of negatives of each row."""
        return len(self.drawn[0])

    def products(self) -> Tensor:
        if self.dots is not None:
            return self.dots
        if self._users is None:
            return product(self.by.p, self.common, self.precision)
        vectors, row = self._users
        return take_rows(product(vectors, self.common, self.precision), row)

    @cached_property
    def common(self) -> Tensor:
        """The vectors of the items that all rows share, (n, d)."""
        return take_rows(self.by.V, self.positions[0])

    @cached_property
    def _users(self) -> tuple[Tensor, Tensor] | None:
        """The vectors of the different users and that of each row among them; None if nearly all rows have their own, and on a
        GPU, which computes all rows sooner than the host knows the users.
        """
        if self.of is None or not compiled(self.pos.device):
            return None
        table, positions = self.of
        own, row = np.unique(positions.numpy(), return_inverse=True)
        if len(own) > _MOSTLY * len(row):
            return None
        return take_rows(table, torch.from_numpy(own)), torch.from_numpy(row)

    @cached_property
    def by_row(self) -> UserCatalogue:
        """The rows compared with the items."""
        with torch.enable_grad():
            return self._compared(self.by.p, torch.arange(len(self.pos)))

    @cached_property
    def by_user(self) -> UserCatalogue:
        """The users compared with the items, or the rows if these are hardly more."""
        if self._users is None:
            return self.by_row
        with torch.enable_grad():
            return self._compared(*self._users)

    def _compared(self, vectors: Tensor, row: Tensor) -> UserCatalogue:
        nothing = OwnItems(self.pos[:0], row[:0], row, len(vectors))
        indptr = np.zeros(len(vectors) + 1, np.int64)
        return UserCatalogue(vectors, self.common, row, nothing, indptr, _NONE, False, self.by.largest)


@dataclass(frozen=True)
class SharedScores(SampledScores):
    """Sums over the scores of items that all rows share, without an array of the scores, by the kernels of the losses over the
    whole catalogue; what no kernel computes reads the array.

    `by_row()` compares each row with the `drawn` items (n,), of which `counted` count, and `by_user()` each user, whose sums
    are copied to the rows.
    """

    drawn: Tensor = field(kw_only=True)
    counted: int = field(kw_only=True)
    by_row: Callable[[], UserCatalogue] = field(kw_only=True)
    by_user: Callable[[], UserCatalogue] = field(kw_only=True)

    @property
    def n(self) -> float:
        return self.counted

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        return self.by_user().logsumexp(tau)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.by_user().moments()

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._for(shift).mean_softplus(shift)

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._for(shift).mean_relu(shift)

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        return self.by_row().log_sum_sigmoid(shift, tau, inner)

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        return self.by_row().sum_sigmoid(shift, inner)

    def mean_softplus_of_sigmoid(self, square: float, slope: Tensor, shift: Tensor, inner: float = 1.0) -> Tensor:
        return self.by_user().mean_softplus_of_sigmoid(square, slope, shift, inner)

    def mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return self.by_user().mean(function)

    def tilted(self, tau: float, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        own = self.by_user()
        instead = own.instead and take_rows(items, own.instead.ids)
        return own.tilted(tau, users, take_rows(items, self.drawn), instead)

    def detached(self) -> SharedScores:
        sides = {"by_row": lambda: self.by_row().detached(), "by_user": lambda: self.by_user().detached()}
        return SharedScores(lambda: self.values.detach(), ids=lambda: self.ids, drawn=self.drawn, counted=self.counted, **sides)

    def _for(self, shift: Tensor | float) -> UserCatalogue:
        return self.by_row() if isinstance(shift, Tensor) and shift.ndim else self.by_user()


class InBatch(Shared):
    """The items of a batch are the negatives of its other rows: of n items, each row leaves out its own."""

    @property
    def n(self) -> int:
        return len(self.drawn[0]) - 1

    @cached_property
    def by_user(self) -> UserCatalogue:
        return self.by_row  # each row leaves out another item

    def _compared(self, vectors: Tensor, row: Tensor) -> UserCatalogue:
        n = len(self.pos)
        place = np.arange(n) if self.batch.at is None else self.batch.at
        own = OwnItems(self.pos, row, row, n)
        return UserCatalogue(vectors, self.common, row, own, np.arange(n + 1), place, True, self.by.largest)

    @cached_property
    def ids(self) -> Tensor:
        return self.of_rows(self.drawn.expand(len(self.pos), -1))

    @cached_property
    def logq(self) -> Tensor:
        logq = on_device(self.batch.negatives.logq, self.pos.device).to(self.pos)
        return self.of_rows(logq.expand(len(self.pos), self.drawn.shape[1]))

    def of_rows(self, scores: Tensor) -> Tensor:
        """(B, n) → (B, n − 1): the positive of a row is not its own negative."""
        n = scores.shape[1]
        if self.batch.at is None:
            return scores.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
        place = on_device(self.batch.at, scores.device)[:, None]
        others = torch.arange(n - 1, device=scores.device).expand(len(scores), -1)
        return scores.gather(1, others + (others >= place))


class Replacing(Shared):
    """Shared negatives that are items of a row's user are replaced by other items, in the rows of this user alone."""

    def _compared(self, vectors: Tensor, row: Tensor) -> UserCatalogue:
        replaced, place = self.batch.negatives.replaced, np.full(len(row), -1)
        place[np.unique(row.numpy(), return_index=True)[1]] = np.arange(len(vectors))  # at the first row of each user
        group = place[replaced.rows]
        order = np.lexsort((replaced.columns, group))
        order = order[group[order] >= 0]
        group, columns = group[order], replaced.columns[order]
        of, at = torch.from_numpy(group), torch.from_numpy(order)
        indptr = np.searchsorted(group, np.arange(len(vectors) + 1))
        own = OwnItems(pair_dot(vectors, self.common, of, torch.from_numpy(columns)), of, row, len(vectors))
        instead = Instead(pair_dot(vectors, self._both[1], of, at), of, torch.from_numpy(replaced.items[order]))
        return UserCatalogue(vectors, self.common, row, own, indptr, columns, True, self.by.largest, instead)

    @property
    def common(self) -> Tensor:
        return self._both[0]

    @cached_property
    def _both(self) -> tuple[Tensor, Tensor]:
        """The vectors of what is shared, (n, d), and of what replaces it, (t, d), by one access to the table, whose gradient
        has the size of the table.
        """
        replacing = self.items.positions(self.batch.negatives.replaced.items)
        n = self.positions.shape[1]
        both = take_rows(self.by.V, torch.cat([self.positions[0], replacing]))
        return both[:n], both[n:]

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """The rows and columns of negatives that others replace."""
        replaced = self.batch.negatives.replaced
        rows, columns = (on_device(each, self.pos.device) for each in (replaced.rows, replaced.columns))
        return rows, columns

    @cached_property
    def ids(self) -> Tensor:
        items = on_device(self.batch.negatives.replaced.items, self.pos.device)
        return self.drawn.expand(len(self.pos), -1).index_put(self.places, items)

    def of_rows(self, scores: Tensor) -> Tensor:
        replacing = self.by.single(self.places[0], self.items.positions(self.batch.negatives.replaced.items))
        return scores.index_put(self.places, replacing)


def negatives_of(batch: Batch, *given: Any) -> Drawn:
    """The negatives of a batch that has some, as its way of sampling has them; `given` as for `Drawn`."""
    if batch.negatives.replaced is not None:
        return Replacing(batch, *given)
    if batch.in_batch:
        return InBatch(batch, *given)
    return (Shared if len(batch.negatives.items) == 1 else Drawn)(batch, *given)
