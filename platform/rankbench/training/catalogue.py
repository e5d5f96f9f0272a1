"""Scores of the whole catalogue, in chunks that stay in cache: what softmax and RG² need of them, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 1 << 20  # scores that are worked on at a time
_KEPT = 1 << 28  # bytes


@dataclass(frozen=True)
class ChunkedCatalogue:
    """rows (B, d) against items (n_items, d): `losses.spec.Catalogue` without the (B, n_items) array. `precision`: of the
    products; bfloat16 has eight bits for a score and is three times as fast where the processor has it.
    """

    rows: Tensor
    items: Tensor
    precision: Literal["float32", "bfloat16"] = "float32"

    def logsumexp(self) -> Tensor:
        return _LogSumExp.apply(self.rows, self.items, self.precision == "bfloat16")

    def moments(self) -> tuple[Tensor, Tensor]:
        """By the Gram of the items: mean_j (p · q_j)² = pᵀ (QᵀQ) p / N, in O(N d² + B d²)."""
        n = len(self.items)
        mean = self.rows @ (self.items.sum(dim=0) / n)
        return mean, ((self.rows @ (self.items.T @ self.items / n)) * self.rows).sum(dim=1)

    def scores(self) -> Tensor:
        return self.rows @ self.items.T


class _LogSumExp(torch.autograd.Function):
    """The sum is rescaled to the largest score met so far. Exponentials that fit into _KEPT are kept for the backward pass;
    else it makes the scores again, a third product more.
    """

    @staticmethod
    def forward(ctx, rows: Tensor, items: Tensor, short: bool) -> Tensor:
        left, right = (rows.bfloat16(), items.bfloat16()) if short else (rows, items)
        top = rows.new_full((len(rows),), -torch.inf)
        total = torch.zeros_like(top)
        keeps = len(rows) * len(items) * rows.element_size() <= _KEPT
        ctx.kept = []
        for part in right.split(_items_a_chunk(rows)):
            scores = (left @ part.T).to(rows.dtype)
            higher = torch.maximum(top, scores.amax(dim=1))
            powers = scores.sub_(higher[:, None]).exp_()
            total = total * torch.exp(top - higher) + powers.sum(dim=1)
            top = higher
            ctx.kept += [(powers, higher)] if keeps else []
        result = top + torch.log(total)
        ctx.save_for_backward(left, right, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        rows, items, result = ctx.saved_tensors  # in the precision of the products
        d_rows, d_items = (torch.zeros_like(side, dtype=grad.dtype) for side in (rows, items))
        size = _items_a_chunk(rows)
        scratch = grad.new_empty(len(rows), min(size, len(items)))
        for number, (part, mine) in enumerate(zip(items.split(size), d_items.split(size), strict=True)):
            share = scratch[:, : len(part)]  # softmax times what is passed down
            if ctx.kept:
                powers, higher = ctx.kept[number]
                torch.mul(powers, (torch.exp(higher - result) * grad)[:, None], out=share)
            else:
                share.copy_(rows @ part.T).sub_(result[:, None]).exp_().mul_(grad[:, None])
            share = share.to(rows.dtype)
            d_rows += share @ part
            mine.copy_(share.T @ rows)
        return d_rows, d_items, None


def _items_a_chunk(rows: Tensor) -> int:
    return max(64, _CHUNK // max(1, len(rows)))
