"""Scores of the whole catalogue, in chunks that stay in cache: what softmax and RG² need of them, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 1 << 19  # scores that exist at a time


@dataclass(frozen=True)
class ChunkedCatalogue:
    """rows (B, d) against items (n_items, d): `losses.spec.Catalogue` without the (B, n_items) array."""

    rows: Tensor
    items: Tensor

    def logsumexp(self) -> Tensor:
        return _LogSumExp.apply(self.rows, self.items)

    def moments(self) -> tuple[Tensor, Tensor]:
        """By the Gram of the items: mean_j (p · q_j)² = pᵀ (QᵀQ) p / N, in O(N d² + B d²)."""
        n = len(self.items)
        mean = self.rows @ (self.items.sum(dim=0) / n)
        return mean, ((self.rows @ (self.items.T @ self.items / n)) * self.rows).sum(dim=1)

    def scores(self) -> Tensor:
        return self.rows @ self.items.T


class _LogSumExp(torch.autograd.Function):
    """The sum is rescaled to the largest score met so far; the backward pass makes the scores again."""

    @staticmethod
    def forward(ctx, rows: Tensor, items: Tensor) -> Tensor:
        top = rows.new_full((len(rows),), -torch.inf)
        total = torch.zeros_like(top)
        for part in items.split(_items_a_chunk(rows)):
            scores = rows @ part.T
            higher = torch.maximum(top, scores.amax(dim=1))
            total = total * torch.exp(top - higher) + scores.sub_(higher[:, None]).exp_().sum(dim=1)
            top = higher
        result = top + torch.log(total)
        ctx.save_for_backward(rows, items, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        rows, items, result = ctx.saved_tensors
        d_rows, d_items = torch.zeros_like(rows), torch.empty_like(items)
        size = _items_a_chunk(rows)
        for part, mine in zip(items.split(size), d_items.split(size), strict=True):
            share = (rows @ part.T).sub_(result[:, None]).exp_().mul_(grad[:, None])  # softmax times what is passed down
            d_rows.addmm_(share, part)
            torch.mm(share.T, rows, out=mine)
        return d_rows, d_items


def _items_a_chunk(rows: Tensor) -> int:
    return max(64, _CHUNK // max(1, len(rows)))
