"""Scores by an encoder's function of a user and an item: what losses can read of them, and those of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from rankbench.kernels.rows import take_rows
from rankbench.losses.spec import Loss, Ragged
from rankbench.models.spec import PairModel
from rankbench.training.params import TrainingParams

_READS = {
    "catalogue": "the scores of all items in each step, each a pass of the network",
    "rivals": "similarities of two items",
    "user_vectors": "the vectors of users as those of a product",
}


def why_not(loss: Loss, p: TrainingParams) -> str:
    """Why `loss` cannot be trained with `p` on an encoder that scores pairs, as half a sentence; empty if it can."""
    similarity = loss.similarity if p.similarity == "auto" else p.similarity
    if loss.similarity == "distance" or loss.unit_ball:
        return "it needs distances of vectors"
    reads = [_READS[need] for need in sorted(loss.needs) if need in _READS]
    if reads:
        return f"it reads {reads[0]}"
    if similarity != "dot":
        fixed = loss.only_because
        return f"it needs cosines, because {fixed}" if fixed else f"it has no {similarity}; use similarity=dot"
    if p.objective == "catalogue":
        return "objective=catalogue needs products of vectors"
    if p.temperature != 1 or p.precision != "float32":
        return "temperature and precision are those of products of vectors"
    return ""


class PairScores:
    """The scores of B rows by `encoder`, for rows of users p (B, d) and a table of item vectors V (r, d)."""

    def __init__(self, encoder: PairModel, p: Tensor, V: Tensor):
        self.encoder, self.p, self.V = encoder, p, V

    def __call__(self, positions: Tensor) -> Tensor:
        """The scores (B, n) with the items at `positions` in V, (B, n) or (1, n) int64."""
        vectors = take_rows(self.V, positions.reshape(-1)).view(*positions.shape, -1)
        return self.encoder.pair_scores(self.p, vectors)

    def single(self, row: Tensor, positions: Tensor) -> Tensor:
        """The scores (T,) of row[t] with the item at positions[t] in V, for row and positions (T,) int64."""
        return self.encoder.pair_scores(take_rows(self.p, row), take_rows(self.V, positions)[:, None])[:, 0]

    @torch.no_grad()
    def ragged(self, row: Tensor, ids: Tensor, table: Tensor) -> Ragged:
        """The scores of row[t] with item ids[t] of `table` (n_items, d), for row and ids (T,) int64, without gradient."""
        return Ragged(self.encoder.pair_scores(self.p[row], table[ids][:, None])[:, 0], row)
