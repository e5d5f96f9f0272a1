"""Sums over all items of a function of a user's scores, differentiable, and the k-th largest of these scores.

On the CPU, the kernels of `score_tiles.py` compute them without an array of all scores; elsewhere PyTorch computes parts of
that array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus
from torch.utils.checkpoint import checkpoint

from rankbench.core.devices import compiled
from rankbench.kernels import score_tiles as tiles
from rankbench.kernels.parallel import in_parallel
from rankbench.kernels.rows import padded
from rankbench.kernels.score_tiles import EXP, FAR, ITEMS, RELU, SIGMOID, SIGMOID_POWER, SOFTPLUS, SOFTPLUS_OF_SIGMOID, USERS
from rankbench.kernels.transfer import on_device

PART = 1 << 22  # scores that PyTorch holds at once
_KEPT = 1 << 28  # bytes of slopes that are kept for the backward pass; beyond, they are computed twice


def catalogue_sum(
    users: Tensor,
    items: Tensor,
    shift: Tensor,
    kind: int,
    scale: float = 1.0,
    power: float | Tensor = 1.0,
    left_out: tuple[np.ndarray, np.ndarray] | None = None,
    square: float = 0.0,
) -> Tensor:
    """Σ_j f(scale · users_u · items_j − shift_u), (m,), for the function f of `kind`. Differentiable once in all three tensors.

    For SOFTPLUS_OF_SIGMOID the shift is outside the sigmoid, and `power`, a number for all users, is differentiable, too.
    `left_out` are index pointers (m + 1,) and indices, ascending per user, of items that do not count.
    """
    if compiled(users.device):
        return _Sum.apply(users, items, shift, kind, scale, power, left_out, square)
    return _plain_sum(users, items, shift, kind, scale, power, left_out, square)


def kth_largest(users: Tensor, items: Tensor, k: int) -> Tensor:
    """The k-th largest score of each user, (m,), without gradient."""
    if not compiled(users.device):
        parts = users.split(max(1, PART // len(items)))
        return torch.cat([(part @ items.T).topk(k, dim=1).values[:, -1] for part in parts])
    given = _Arrays.of(users, items)
    best = np.full((given.n_blocks * USERS, k), -np.inf, given.items.dtype)
    scratch = np.empty(given.n_blocks * ITEMS * USERS, given.items.dtype)
    arrays = (given.columns, given.items, given.tail), len(items), given.width, k, scratch, best
    in_parallel(tiles.largest, given.n_blocks, len(users) * len(items), *arrays)
    return torch.from_numpy(best[: len(users), 0].copy())


def _plain_sum(users, items, shift, kind, scale, power, left_out, square=0.0) -> Tensor:
    def of_sigmoid(x: Tensor, shift: Tensor) -> Tensor:
        share = torch.sigmoid(x)
        return softplus(square * share.square() + power * share - shift) * (x > FAR / 2)

    functions: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
        EXP: lambda x, shift: torch.exp(x - shift),
        SOFTPLUS: lambda x, shift: softplus(x - shift),
        RELU: lambda x, shift: torch.relu(x - shift),
        SIGMOID: lambda x, shift: torch.sigmoid(x - shift),
        SIGMOID_POWER: lambda x, shift: (power * logsigmoid(x - shift)).exp(),
        SOFTPLUS_OF_SIGMOID: of_sigmoid,
    }

    def part(users: Tensor, shift: Tensor, own: tuple[Tensor, ...] | None) -> Tensor:
        return functions[kind](without(scale * (users @ items.T), own), shift[:, None]).sum(dim=1)

    parts = parts_of(users, len(items), left_out)
    return torch.cat([checkpoint(part, users[rows], shift[rows], own, use_reentrant=False) for rows, own in parts])


def parts_of(users: Tensor, n_items: int, left_out) -> Iterator[tuple[slice, tuple[Tensor, ...] | None]]:
    """Slices of users whose scores PyTorch holds at once, with the row and item of what is left out in each."""
    size = max(1, PART // n_items)
    for start, stop in pairwise([*range(0, len(users), size), len(users)]):
        own = None
        if left_out is not None:
            indptr, indices = left_out
            row = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
            item = indices[indptr[start] : indptr[stop]]
            own = tuple(on_device(index.astype(np.int64), users.device) for index in (row, item))
        yield slice(start, stop), own


def without(x: Tensor, own: tuple[Tensor, ...] | None) -> Tensor:
    """x with so low a number for what is left out that its function and slope are 0."""
    return x if own is None else x.index_put(own, x.new_full((), FAR))


@dataclass
class _Arrays:
    """Users and items as the kernels read them: flat, with vectors of a multiple of LANES numbers."""

    columns: np.ndarray
    items: np.ndarray
    tail: np.ndarray
    width: int
    n_blocks: int
    n_tiles: int

    @classmethod
    def of(cls, users: Tensor, items: Tensor) -> _Arrays:
        users, items = padded(users), padded(items)
        width, n_blocks, n_tiles = users.shape[1], -(-len(users) // USERS), -(-len(items) // ITEMS)
        tail = np.zeros((ITEMS, width), items.dtype)
        rest = items[(n_tiles - 1) * ITEMS :]
        tail[: len(rest)] = rest
        columns = np.ascontiguousarray(blocked(users, n_blocks).transpose(0, 2, 1))
        return cls(columns.reshape(-1), items.reshape(-1), tail.reshape(-1), width, n_blocks, n_tiles)


def blocked(rows: np.ndarray, n_blocks: int) -> np.ndarray:
    """Rows (m, width) in blocks of USERS, (n_blocks, USERS, width), followed by zeros."""
    out = np.zeros((n_blocks * USERS, rows.shape[1]), rows.dtype)
    out[: len(rows)] = rows
    return out.reshape(n_blocks, USERS, -1)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, users: Tensor, items: Tensor, shift: Tensor, kind: int, scale: float, power, left_out, square) -> Tensor:
        given = _Arrays.of(users, items)
        n, dtype = given.n_blocks * USERS, given.items.dtype
        per_block = given.n_tiles * ITEMS * USERS
        at_once = max(1, _KEPT // (per_block * dtype.itemsize))
        shifts = np.zeros(n, dtype)
        shifts[: len(users)] = shift.detach().numpy()
        indptr, indices = left_out if left_out is not None else (np.zeros(len(users) + 1, np.int32), np.zeros(0, np.int32))
        results = sums, slopes, of_power, user_grad = tuple(np.zeros(size, dtype) for size in (n, n, n, n * given.width))
        kept = np.empty(min(at_once, given.n_blocks) * per_block, dtype)
        tables, numbers = (given.columns, given.items, given.tail), tuple(dtype.type(float(x)) for x in (scale, power, square))
        fixed = kind, tables, len(items), given.width, numbers, shifts, left_out is not None, indptr, indices, kept

        def add_up(start: int, stop: int, out: tuple[np.ndarray, ...]) -> None:
            """Compute the blocks start to stop, whose slopes fit into `kept`."""
            in_parallel(tiles.add_up, stop - start, len(users) * len(items), *fixed, out, start)

        parts = [*pairwise([*range(0, given.n_blocks, at_once), given.n_blocks])]
        for start, stop in parts:
            add_up(start, stop, results)
        ctx.given, ctx.parts, ctx.kept, ctx.scale, ctx.sizes = given, parts, kept, scale, (users.shape, items.shape)
        ctx.user_grad, ctx.slopes, ctx.users = user_grad, slopes, padded(users)
        ctx.of_power = of_power if isinstance(power, Tensor) and kind == SOFTPLUS_OF_SIGMOID else None
        scratch = tuple(np.empty_like(each) for each in results) if len(parts) > 1 else ()
        ctx.again = lambda start, stop: add_up(start, stop, scratch)
        return torch.from_numpy(sums[: len(users)].copy())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        given, (user_shape, item_shape) = ctx.given, ctx.sizes
        weight = grad.numpy()[:, None]
        own = ctx.slopes[: len(weight)]
        d_shift = torch.from_numpy(-weight[:, 0] * own)
        user_grad = ctx.user_grad.reshape(-1, given.width)[: len(weight)] * (weight * ctx.scale)
        weighted = blocked(ctx.users * (weight * ctx.scale).astype(ctx.users.dtype), given.n_blocks)
        item_grad, tail_grad = np.zeros(item_shape[0] * given.width, own.dtype), np.zeros(ITEMS * given.width, own.dtype)
        for start, stop in ctx.parts:
            if len(ctx.parts) > 1:
                ctx.again(start, stop)
            rows = weighted[start:stop].reshape(-1)
            arrays = ctx.kept, rows, stop - start, item_shape[0], given.width, item_grad, tail_grad
            in_parallel(tiles.spread_back, given.n_tiles, user_shape[0] * item_shape[0], *arrays)
        item_grad = item_grad.reshape(-1, given.width)
        rest = item_shape[0] - (given.n_tiles - 1) * ITEMS
        item_grad[(given.n_tiles - 1) * ITEMS :] = tail_grad.reshape(-1, given.width)[:rest]
        d_users, d_items = (torch.from_numpy(each[:, : user_shape[1]]) for each in (user_grad, item_grad))
        d_power = None
        if ctx.of_power is not None:  # of all users together, in float64, since users may cancel out
            d_power = torch.tensor(weight[:, 0].astype(np.float64) @ ctx.of_power[: len(weight)], dtype=grad.dtype)
        return d_users, d_items, d_shift, None, None, d_power, None, None
