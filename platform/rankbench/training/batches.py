"""A batch of interactions, and the rows of the tables of vectors that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rankbench.kernels.rows import take_rows
from rankbench.kernels.transfer import on_device
from rankbench.training.negatives import Negatives


@dataclass(frozen=True)
class Batch:
    """B interactions: `users` and `items` int64 (B,), `negatives` or None if the loss samples none, `extra` (B, m) or None.

    `at` (B,) int64 are the positions of the rows in the global batch, of which this is a worker's part; None if it is whole.
    `there` are the users and the items on the device of the fit, unless this is the processor.
    """

    users: np.ndarray
    items: np.ndarray
    negatives: Negatives | None
    extra: np.ndarray | None
    in_batch: bool = False
    at: np.ndarray | None = None
    there: tuple[Tensor, Tensor] | None = None

    def part(self, at: np.ndarray) -> Batch:
        """The rows at positions `at` (m,) int64. Negatives that all rows share, or that are in the batch, stay whole."""
        negatives = self.negatives and self.negatives.of_rows(at, len(self.users))
        extra = None if self.extra is None else self.extra[at]
        return Batch(self.users[at], self.items[at], negatives, extra, self.in_batch, at)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The users and the items on a device."""
        return self.there or (on_device(self.users, device), on_device(self.items, device))


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: `vectors` (r, d) belong to the sorted indices `ids` (r,) int64, or to all rows if None."""

    vectors: Tensor
    ids: np.ndarray | None

    @classmethod
    def of(cls, table: Tensor, ids: np.ndarray | None) -> Rows:
        """The rows with indices `ids`, or all rows if these are more than half of the table, which avoids a copy."""
        if ids is None or 2 * len(ids) > len(table):
            return cls(table, None)
        return cls(take_rows(table, on_device(ids, table.device)), ids)

    @cached_property
    def _place(self) -> np.ndarray:
        """The position in `vectors` of each index up to the largest one; those without a row have no meaning."""
        assert self.ids is not None
        place = np.zeros(self.ids[-1] + 1 if len(self.ids) else 0, np.int64)
        place[self.ids] = np.arange(len(self.ids))
        return place

    def positions(self, ids: np.ndarray | Tensor) -> Tensor:
        """Positions in `vectors` of the rows with indices `ids`, all of which must be present."""
        if isinstance(ids, Tensor):
            if self.ids is None:
                return ids
            ids = ids.cpu().numpy()
        positions = ids if self.ids is None else self._place[ids]
        return on_device(positions, self.vectors.device)


def touched_items(batch: Batch, n_items: int, whole: bool) -> np.ndarray | None:
    """The sorted, unique items that a batch scores; None for all items, if the loss needs the `whole` catalogue."""
    if whole:
        return None
    lists = [batch.items]
    if batch.negatives:
        lists += [batch.negatives.items.reshape(-1), *([batch.negatives.replaced.items] if batch.negatives.replaced else [])]
    lists += [batch.extra.reshape(-1)] if batch.extra is not None else []
    touched = np.zeros(n_items, bool)
    for ids in lists:
        touched[ids.cpu().numpy() if isinstance(ids, Tensor) else ids] = True
    return np.flatnonzero(touched)
