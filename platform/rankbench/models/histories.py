"""The items of users as bags, for encoders that pool the vectors of a user's items.

The bag of an interaction leaves its own item out: a model that sees it in training learns to give each item a long vector
instead of what goes together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Generator, Tensor
from torch.nn.functional import embedding_bag

from rankbench.core.thread_pool import slices
from rankbench.models.edges import Edges
from rankbench.models.layers import dropout
from rankbench.models.spec import EmbeddingModel

CHUNK = 4096  # users whose items are read at once


class Bags(NamedTuple):
    """Lists of items: those of bag b are items[starts[b]:starts[b + 1]]. `items` and `bag`, the bag of each item, are (T,)
    int64; `starts` (m,) int64 and `sizes` (m,) are one per bag. A bag may be empty.
    """

    items: Tensor
    bag: Tensor
    starts: Tensor
    sizes: Tensor

    def sums(self, table: Tensor) -> Tensor:
        """The sum of the vectors of each bag's items in `table` (n_items, d), (m, d)."""
        return embedding_bag(self.items, table, self.starts, mode="sum")

    def edges(self, place: Tensor, n_used: int) -> Edges:
        """An edge from the node m + place[t] to the node of its bag for each t: m bags, then the items that they use.

        `place` (T,) int64 is the position of each entry of `items` among the n_used different ones.
        """
        m = len(self.sizes)
        indptr = np.append(self.starts.cpu().numpy(), np.full(n_used + 1, len(self.items)))
        return Edges(indptr, place.cpu().numpy() + m)

    def softmax(self, logits: Tensor, pad: int = 0) -> Tensor:
        """exp(logits) / Σ exp(logits) within each bag, (T,). With `pad`, a bag's sum has as many further terms exp(0) as the
        bag has fewer items than `pad`.
        """
        top = logits.new_zeros(len(self.sizes)) if pad else logits.new_full((len(self.sizes),), -torch.inf)
        top = top.scatter_reduce(0, self.bag, logits.detach(), "amax")
        powers = (logits - top[self.bag]).exp()
        sums = powers.new_zeros(len(self.sizes)).index_add(0, self.bag, powers)
        if pad:
            sums = sums + (pad - self.sizes).clamp(min=0) * (-top).exp()
        return powers / sums[self.bag]


class PooledModel(EmbeddingModel):
    """An encoder that pools the vectors of a user's items in X. In training, each row has a vector of its own. `p` has the
    parameter user_dropout.
    """

    def __init__(self, X: sp.csr_array, p: Any, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(users, items)
        self.X, self.p, self.generator = X, p, generator

    def without(self, users: Tensor, items: Tensor) -> Bags:
        """The bags of interactions: the items of `users` (B,), each without the row's own of `items` (B,)."""
        owned = items.cpu().numpy()
        found, row, sizes = self._of(users.cpu().numpy())
        others = found != owned[row]
        return _bags(found[others], row[others], sizes - np.bincount(row[~others], minlength=len(sizes)), users.device)

    def _of(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The items of `users` (m,), the position of each item's user, and the number of items per user."""
        rows = self.X[users]
        sizes = np.diff(rows.indptr).astype(np.int64)
        return rows.indices.astype(np.int64), np.repeat(np.arange(len(users)), sizes), sizes

    def pooled(self, users: Tensor, bags: Bags) -> Tensor:
        """The vectors (m, d) of bags whose users have the learned vectors `users`, one for each of the m bags."""
        raise NotImplementedError  # abstract

    def forward(self) -> tuple[Tensor, Tensor]:
        if self.training:
            return self.users, self.items  # each row has its own vector
        ids, there = np.arange(self.X.shape[0]), self.items.device
        parts = slices(0, len(ids), CHUNK)
        return torch.cat([self.pooled(self.users[part], _bags(*self._of(ids[part]), there)) for part in parts]), self.items

    def row_vectors(self, users: Tensor, items: Tensor) -> Tensor:
        return self.pooled(self.users[users], self.without(users, items))

    def on_direction(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.p.user_dropout, self.generator)


def _bags(items: np.ndarray, row: np.ndarray, sizes: np.ndarray, device: torch.device) -> Bags:
    arrays = items, row, np.cumsum(sizes) - sizes, sizes
    return Bags(*(torch.from_numpy(array).to(device) for array in arrays))
