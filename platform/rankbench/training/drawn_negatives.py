"""The negatives of a batch for its loss: scores, indices and log probabilities, each computed when the loss first reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.kernels.rows import take_rows
from rankbench.losses.others import OwnItems
from rankbench.training.batches import Batch, Rows
from rankbench.training.catalogue import Precision, product
from rankbench.training.sampled_scores import SampledScores
from rankbench.training.shared_scores import SharedScores
from rankbench.training.user_catalogue import UserCatalogue

_MOSTLY = 0.9  # share of different users in a batch above which copying products costs more than computing them twice


class DrawnNegatives:
    """The negatives of B rows.

    `p` (B, d) and `pos` (B,) are the vectors of the rows' users and the scores of the rows' items, V (r, d) the vectors of
    `items`. If rows have the vectors of their users, `of` has a table of these and the position in it of each row's user.
    `positions`, (B, n) or (1, n), are those of the negatives in V, and `dots` (B, n) their products with p, or None if all rows
    share the negatives. For distances, `lengths` are the squared lengths of p and V. `largest` is a bound of the
    scores' sizes, if one is known. `single` computes the products of rows (T,) with the items at positions (T,) in V.
    """

    def __init__(
        self,
        batch: Batch,
        items: Rows,
        V: Tensor,
        p: Tensor,
        pos: Tensor,
        of: tuple[Tensor, np.ndarray] | None,
        positions: Tensor,
        dots: Tensor | None,
        lengths: tuple[Tensor, Tensor] | None,
        largest: float | None,
        precision: Precision,
        single: Callable[[Tensor, Tensor], Tensor],
    ):
        self.batch, self.items, self.V, self.p, self.pos, self.of = batch, items, V, p, pos, of
        self.positions, self.dots, self.lengths, self.largest = positions, dots, lengths, largest
        self.precision, self.single = precision, single
        drawn = batch.negatives.items
        self.drawn = drawn if isinstance(drawn, Tensor) else torch.from_numpy(drawn).to(V.device)

    def table(self) -> SampledScores:
        """Sums over the scores: by the kernels where rows share all negatives and scores are products."""
        plain = self.dots is not None or self.precision != "float32" or not compiled(self.V.device)
        if plain or self.lengths is not None or self._places is not None:
            return SampledScores(lambda: self.values, ids=lambda: self.ids)
        rows = self._by_row()
        return SharedScores(
            lambda: self.values, ids=lambda: self.ids, by_row=rows, by_user=self._by_user() or rows, drawn=self.drawn[0]
        )

    @cached_property
    def values(self) -> Tensor:
        """The scores, (B, n)."""
        with torch.enable_grad():  # the first to read them may want no gradient, but those that follow may
            dots = self._dots() if self.dots is None else self.dots
            values = self._without_own(similarities(dots, self.positions, self.lengths))
            return values if self._places is None else values.index_put(self._places, self._replacing())

    @cached_property
    def ids(self) -> Tensor:
        """The indices of the items, (B, n), or (1, n) if all rows share all of them."""
        if self._places is not None:
            items = torch.from_numpy(self.batch.negatives.replaced.items).to(self.drawn)
            return self.drawn.expand(len(self.p), -1).index_put(self._places, items)
        return self._without_own(self.drawn.expand(len(self.p), -1)) if self.batch.in_batch else self.drawn

    @cached_property
    def logq(self) -> Tensor:
        """The log probabilities of the draws, (B, n) or (1, n)."""
        logq = torch.as_tensor(self.batch.negatives.logq).to(self.pos)
        n = self.drawn.shape[1]
        if self.batch.in_batch:
            return self._without_own(logq.expand(len(self.p), n))
        return logq.expand(1 if len(logq) == 1 else len(self.p), n)

    def rival(self, k: Tensor) -> Tensor:
        """The similarity of each row's item and its k[b]-th negative, (B,), for k (B,) int64."""
        chosen = self.ids.expand(len(self.p), -1).gather(1, k[:, None])[:, 0]
        q, other = self.V[self.items.positions(self.batch.items)], self.V[self.items.positions(chosen)]
        return (q * other).sum(dim=1) if self.lengths is None else -(q - other).square().sum(dim=1)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor] | None:
        """The rows and columns of negatives that others replace; None if there are none."""
        replaced = self.batch.negatives.replaced
        if replaced is None:
            return None
        rows, columns = (torch.from_numpy(each).to(self.V.device) for each in (replaced.rows, replaced.columns))
        return rows, columns

    def _replacing(self) -> Tensor:
        """The scores of the items that replace others."""
        (rows, _), positions = self._places, self.items.positions(self.batch.negatives.replaced.items)
        lengths = None if self.lengths is None else (self.lengths[0][rows], self.lengths[1])
        return similarities(self.single(rows, positions)[:, None], positions[:, None], lengths)[:, 0]

    @cached_property
    def _common(self) -> Tensor:
        """The vectors of the items that all rows share, (n, d)."""
        return take_rows(self.V, self.positions[0])

    @cached_property
    def _users(self) -> tuple[Tensor, Tensor] | None:
        """The vectors of the different users and that of each row among them; None if nearly all rows have their own."""
        if self.of is None:
            return None
        table, positions = self.of
        own, row = np.unique(positions, return_inverse=True)
        if len(own) > _MOSTLY * len(row):
            return None
        on = self.V.device
        return take_rows(table, torch.from_numpy(own).to(on)), torch.from_numpy(row).to(on)

    def _dots(self) -> Tensor:
        """The product of a user in several rows is computed once."""
        if self._users is None:
            return product(self.p, self._common, self.precision)
        vectors, row = self._users
        return take_rows(product(vectors, self._common, self.precision), row)

    def _by_row(self) -> UserCatalogue:
        """The rows compared with the items. With in-batch negatives, each leaves its own out."""
        n, left_out = len(self.p), self.batch.in_batch
        every = torch.arange(n)
        own = OwnItems(self.pos, every, every, n)
        indptr = np.arange(n + 1) if left_out else np.zeros(n + 1, np.int64)
        return UserCatalogue(self.p, self._common, every, own, indptr, self._place(), left_out, self.largest)

    def _by_user(self) -> UserCatalogue | None:
        if self._users is None or self.batch.in_batch:
            return None
        vectors, row = self._users
        none = OwnItems(self.pos[:0], row[:0], row, len(vectors))
        indptr = np.zeros(len(vectors) + 1, np.int64)
        return UserCatalogue(vectors, self._common, row, none, indptr, np.zeros(0, np.int64), False, self.largest)

    def _place(self) -> np.ndarray:
        """The position of each row's item among in-batch negatives, (B,)."""
        if not self.batch.in_batch:
            return np.zeros(0, np.int64)
        return np.arange(len(self.p)) if self.batch.at is None else self.batch.at

    def _without_own(self, square: Tensor) -> Tensor:
        """(B, n) → (B, n − 1) with in-batch negatives: the positive of a row is not its own negative."""
        if not self.batch.in_batch:
            return square
        n = square.shape[1]
        if self.batch.at is None:
            return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
        place = torch.from_numpy(self.batch.at).to(square.device)[:, None]
        others = torch.arange(n - 1, device=square.device).expand(len(square), -1)
        return square.gather(1, others + (others >= place))


def similarities(dots: Tensor, positions: Tensor, lengths: tuple[Tensor, Tensor] | None) -> Tensor:
    """The scores from products (B, n) with the items at `positions`: the products, or −|p − v|² with squared lengths."""
    return dots if lengths is None else 2 * dots - lengths[0][:, None] - lengths[1][positions]
