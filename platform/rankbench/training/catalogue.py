"""Products of a batch with many items, in chunks that stay in cache: scores, what softmax and RG² need, and their gradients.

Each chunk is computed by one thread, and sums over chunks are taken in their order: the number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numba
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.fitting.executors import in_order

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
        return product(self.rows, self.items)


def product(rows: Tensor, items: Tensor, precision: Literal["float32", "bfloat16"] = "float32") -> Tensor:
    """rows (B, d) times the transpose of items (n, d), (B, n), of the dtype of `rows`; once differentiable."""
    return _Product.apply(rows, items, precision == "bfloat16")


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, items: Tensor, short: bool) -> Tensor:
        left, right = (rows.bfloat16(), items.bfloat16()) if short else (rows, items)
        ctx.save_for_backward(left, right)
        out = rows.new_empty(len(rows), len(items))

        def work(chunk: slice) -> None:
            out[:, chunk] = left @ right[chunk].T

        for _ in _in_chunks(work, rows, items):
            pass
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        rows, items = ctx.saved_tensors
        d_rows, d_items = (torch.zeros_like(side, dtype=grad.dtype) for side in (rows, items))

        def work(chunk: slice) -> Tensor:
            share = grad[:, chunk].to(rows.dtype)
            d_items[chunk] = share.T @ rows
            return share @ items[chunk]

        for part in _in_chunks(work, rows, items):
            d_rows += part
        return d_rows, d_items, None


class _LogSumExp(torch.autograd.Function):
    """Exponentials, relative to the largest score of their chunk, are kept for the backward pass where they fit into _KEPT;
    else it makes the scores again, a third product more.
    """

    @staticmethod
    def forward(ctx, rows: Tensor, items: Tensor, short: bool) -> Tensor:
        left, right = (rows.bfloat16(), items.bfloat16()) if short else (rows, items)
        keeps = len(rows) * len(items) * rows.element_size() <= _KEPT

        def work(chunk: slice) -> tuple[Tensor, Tensor, Tensor | None]:
            scores = (left @ right[chunk].T).to(rows.dtype)
            top = scores.amax(dim=1)
            powers = scores.sub_(top[:, None]).exp_()
            return top, powers.sum(dim=1), powers if keeps else None

        ctx.kept = []
        top = rows.new_full((len(rows),), -torch.inf)
        total = torch.zeros_like(top)
        for own_top, own_total, powers in _in_chunks(work, rows, items):
            higher = torch.maximum(top, own_top)
            total = total * torch.exp(top - higher) + own_total * torch.exp(own_top - higher)
            top = higher
            ctx.kept += [(powers, own_top)] if keeps else []
        result = top + torch.log(total)
        ctx.save_for_backward(left, right, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        rows, items, result = ctx.saved_tensors  # in the precision of the products
        d_rows, d_items = (torch.zeros_like(side, dtype=grad.dtype) for side in (rows, items))
        size = _items_a_chunk(rows)

        def work(chunk: slice) -> Tensor:
            # The softmax times what is passed down.
            if ctx.kept:
                powers, top = ctx.kept[chunk.start // size]
                share = powers * (torch.exp(top - result) * grad)[:, None]
            else:
                share = (rows @ items[chunk].T).to(grad.dtype).sub_(result[:, None]).exp_().mul_(grad[:, None])
            share = share.to(rows.dtype)
            d_items[chunk] = share.T @ rows
            return share @ items[chunk]

        for part in _in_chunks(work, rows, items):
            d_rows += part
        return d_rows, d_items, None


def _in_chunks(work: Callable[[slice], Any], rows: Tensor, items: Tensor) -> Iterator[Any]:
    """work(chunk of the items) for every chunk, in order; by several threads on the CPU, whose products use one each."""
    size = _items_a_chunk(rows)
    chunks = [slice(start, min(start + size, len(items))) for start in range(0, len(items), size)]
    workers = numba.get_num_threads() if rows.device.type == "cpu" and len(chunks) > 1 else 1

    def alone(chunk: slice) -> Any:
        # Both are settings of each thread.
        if workers > 1 and torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        with torch.no_grad():
            return work(chunk)

    return in_order(alone, chunks, workers)


def _items_a_chunk(rows: Tensor) -> int:
    return max(64, _CHUNK // max(1, len(rows)))
