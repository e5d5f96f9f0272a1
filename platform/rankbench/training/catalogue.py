"""Products of a batch with many items, in chunks that fit into the cache: scores, their log-sum-exp and moments, and gradients.

Each chunk is computed by one thread, and chunks are added in order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.core.thread_pool import in_order
from rankbench.kernels.catalogue_sum import catalogue_sum
from rankbench.kernels.neighbours import Precision
from rankbench.kernels.rows import take_rows
from rankbench.kernels.score_tiles import SIGMOID

_CHUNK = 1 << 20  # scores computed at once
_KEPT = 1 << 28  # bytes of exponentials that are kept for the backward pass


@dataclass(frozen=True)
class ChunkedCatalogue:
    """What a loss over the whole catalogue reads of `losses.others.Others`, for users (m, d) and items (n_items, d).

    Row b of the batch belongs to user of[b], (B,) int64. What is the same for all rows of a user is computed once. The array of
    all scores is not built, except for `of_all`.

    `precision` is that of the products of `logsumexp` and `of_all`: bfloat16 keeps eight bits of a score and is about three
    times as fast on processors that support it.
    """

    users: Tensor
    items: Tensor
    of: Tensor
    precision: Precision = "float32"

    def logsumexp(self) -> Tensor:
        return _LogSumExp.apply(self.users, self.items, self.precision == "bfloat16")[self.of]

    def moments(self) -> tuple[Tensor, Tensor]:
        """From the Gram of the items: mean_j (p · q_j)² = pᵀ (QᵀQ) p / N, in O(N d² + B d²)."""
        n = len(self.items)
        mean = self.users @ (self.items.sum(dim=0) / n)
        square = ((self.users @ (self.items.T @ self.items / n)) * self.users).sum(dim=1)
        return mean[self.of], square[self.of]

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        """Σ_j σ(s_j / inner − shift), (B,), for a shift per row (B,)."""
        rows = take_rows(self.users, self.of)  # the shift differs between the rows of a user
        return catalogue_sum(rows, self.items, shift, SIGMOID, 1 / inner)

    def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(product(self.users, self.items, self.precision))[self.of]


def product(rows: Tensor, items: Tensor, precision: Precision = "float32") -> Tensor:
    """Multiply rows (B, d) by the transpose of items (n, d): (B, n), in the dtype of `rows`. Differentiable once."""
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
    """Exponentials, relative to the largest score of their chunk, are kept for the backward pass if they fit into _KEPT bytes.

    Otherwise the backward pass computes the scores again, which is a third product.
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
        size = _items_per_chunk(rows)

        def work(chunk: slice) -> Tensor:
            # The softmax times the incoming gradient.
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
    """Yield work(chunk) for every chunk of the items, in order. On the CPU several threads work, each with one BLAS thread."""
    size = _items_per_chunk(rows)
    chunks = [slice(start, min(start + size, len(items))) for start in range(0, len(items), size)]
    workers = numba.get_num_threads() if compiled(rows.device) and len(chunks) > 1 else 1

    def single_threaded(chunk: slice) -> Any:
        # PyTorch's number of threads and gradient mode are settings of the calling thread.
        if workers > 1 and torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        with torch.no_grad():
            return work(chunk)

    return in_order(single_threaded, chunks, workers)


def _items_per_chunk(rows: Tensor) -> int:
    return max(64, _CHUNK // max(1, len(rows)))
