"""`losses.others.Others` over the whole catalogue, for rows that are all interactions of a block of users.

Every sum over the items is computed once per user and then copied to the user's rows. On the CPU, the kernels of
`catalogue_kernels.py` compute it without an array of all scores; elsewhere, and for functions that they do not have, PyTorch
computes it in parts of that array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus
from torch.utils.checkpoint import checkpoint

from rankbench.core.devices import compiled
from rankbench.losses.others import OwnItems
from rankbench.training import catalogue_kernels as kernels
from rankbench.training.catalogue_kernels import EXP, FAR, ITEMS, RELU, SIGMOID_POWER, SOFTPLUS, USERS
from rankbench.training.kernels import padded
from rankbench.training.parallel import in_parallel

_LARGEST_EXPONENT = 40.0  # exponents up to this size need no shift, in float32 either
_KEPT = 1 << 28  # bytes of slopes that are kept for the backward pass; beyond, they are computed twice
_PART = 1 << 22  # scores that PyTorch holds at once


@dataclass
class UserCatalogue:
    """The scores of `users` (m, d) with `items` (n_items, d); row b of the batch belongs to user `of[b]`, (B,) int64.

    `own` are the scores of the users' own items. With `left_out`, these items do not count, except in `kth_largest`; `indptr`
    and `indices` then list them, in ascending order per user. `largest` is a bound of the scores' sizes, if one is known.
    """

    users: Tensor
    items: Tensor
    of: Tensor
    own: OwnItems
    indptr: np.ndarray
    indices: np.ndarray
    left_out: bool
    largest: float | None = None
    _thresholds: dict[int, Tensor] = field(default_factory=dict)

    @property
    def n(self) -> float | Tensor:
        return self._counts()[self.of] if self.left_out else len(self.items)

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        if not compiled(self.users.device):
            return _plain_logsumexp(self.users, self.items, tau, self._left_out())[self.of]
        bound = self.largest
        if bound is None:
            bound = float(self.users.detach().norm(dim=1).max() * self.items.detach().norm(dim=1).max())
        # The largest score would do, but it takes a pass of its own.
        shift = None if bound / tau <= _LARGEST_EXPONENT else self._largest(1) / tau
        sums = self._sum(EXP, shift, 1 / tau).log()
        return (sums if shift is None else sums + shift)[self.of]

    def moments(self) -> tuple[Tensor, Tensor]:
        n = len(self.items)
        total = self.users @ self.items.sum(dim=0)
        squares = ((self.users @ (self.items.T @ self.items)) * self.users).sum(dim=1)
        if not self.left_out:
            return (total / n)[self.of], (squares / n)[self.of]
        values, group, counts = self.own.values, self.own.group, self._counts()
        total, squares = total.index_add(0, group, -values), squares.index_add(0, group, -values.square())
        return (total / counts)[self.of], (squares / counts)[self.of]

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._mean(SOFTPLUS, shift)

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._mean(RELU, shift)

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        return self._sum(SIGMOID_POWER, self._of_users(shift), 1 / inner, 1 / tau).log()[self.of]

    def mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        parts = self.users.split(max(1, _PART // len(self.items)))
        sums = torch.cat([checkpoint(_summed, function, part, self.items, use_reentrant=False) for part in parts])
        if self.left_out:
            sums = sums.index_add(0, self.own.group, -function(self.own.values))
        return (sums / self._counts())[self.of]

    def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        parts = self.users.split(max(1, _PART // len(self.items)))
        values = [checkpoint(_applied, function, part, self.items, use_reentrant=False) for part in parts]
        return torch.cat(values)[self.of]

    def kth_largest(self, k: int) -> Tensor:
        return self._largest(k)[self.of]

    def _counts(self) -> Tensor:
        """Number of items that count, per user."""
        own = np.diff(self.indptr) if self.left_out else np.zeros(len(self.indptr) - 1)
        return torch.from_numpy(len(self.items) - own).to(self.users)

    def _mean(self, kind: int, shift: Tensor | float) -> Tensor:
        return (self._sum(kind, self._of_users(shift)) / self._counts())[self.of]

    def _of_users(self, shift: Tensor | float) -> Tensor:
        """The shift per user (m,) from one per row (B,), which is equal for all rows of a user, or for all."""
        if not isinstance(shift, Tensor) or shift.ndim == 0:
            return torch.as_tensor(shift, dtype=self.users.dtype, device=self.users.device).expand(len(self.users))
        first = torch.full((len(self.users),), len(self.of), device=self.of.device)
        first = first.scatter_reduce(0, self.of, torch.arange(len(self.of), device=self.of.device), "amin")
        return shift[first]

    def _sum(self, kind: int, shift: Tensor | None, scale: float = 1.0, power: float = 1.0) -> Tensor:
        shift = torch.zeros_like(self.users[:, 0]) if shift is None else shift
        return catalogue_sum(self.users, self.items, shift, kind, scale, power, self._left_out())

    def _left_out(self) -> tuple[np.ndarray, np.ndarray] | None:
        return (self.indptr, self.indices) if self.left_out else None

    def _largest(self, k: int) -> Tensor:
        if k not in self._thresholds:
            self._thresholds[k] = kth_largest(self.users.detach(), self.items.detach(), k)
        return self._thresholds[k]


def catalogue_sum(
    users: Tensor,
    items: Tensor,
    shift: Tensor,
    kind: int,
    scale: float = 1.0,
    power: float = 1.0,
    left_out: tuple[np.ndarray, np.ndarray] | None = None,
) -> Tensor:
    """Σ_j f(scale · users_u · items_j − shift_u), (m,), for the function f of `kind`. Differentiable once in all three tensors.

    `left_out` are index pointers (m + 1,) and indices, ascending per user, of items that do not count.
    """
    if compiled(users.device):
        return _Sum.apply(users, items, shift, kind, scale, power, left_out)
    return _plain_sum(users, items, shift, kind, scale, power, left_out)


def kth_largest(users: Tensor, items: Tensor, k: int) -> Tensor:
    """The k-th largest score of each user, (m,), without gradient."""
    if not compiled(users.device):
        parts = users.split(max(1, _PART // len(items)))
        return torch.cat([(part @ items.T).topk(k, dim=1).values[:, -1] for part in parts])
    given = _Arrays.of(users, items)
    best = np.full((given.n_blocks * USERS, k), -np.inf, given.items.dtype)
    tiles = np.empty(given.n_blocks * ITEMS * USERS, given.items.dtype)
    arrays = given.columns, given.items, given.tail, len(items), given.width, k, tiles, best
    in_parallel(kernels.largest, given.n_blocks, len(users) * len(items), *arrays)
    return torch.from_numpy(best[: len(users), 0].copy())


def _summed(function: Callable[[Tensor], Tensor], users: Tensor, items: Tensor) -> Tensor:
    return function(users @ items.T).sum(dim=1)


def _applied(function: Callable[[Tensor], Tensor], users: Tensor, items: Tensor) -> Tensor:
    return function(users @ items.T)


def _plain_sum(users, items, shift, kind, scale, power, left_out) -> Tensor:
    functions: dict[int, Callable[[Tensor], Tensor]] = {
        EXP: torch.exp,
        SOFTPLUS: softplus,
        RELU: torch.relu,
        SIGMOID_POWER: lambda x: (power * logsigmoid(x)).exp(),
    }

    def part(users: Tensor, shift: Tensor, own: tuple[Tensor, ...] | None) -> Tensor:
        return functions[kind](_without(scale * (users @ items.T) - shift[:, None], own)).sum(dim=1)

    parts = _parts(users, len(items), left_out)
    return torch.cat([checkpoint(part, users[rows], shift[rows], own, use_reentrant=False) for rows, own in parts])


def _plain_logsumexp(users: Tensor, items: Tensor, tau: float, left_out) -> Tensor:
    def part(users: Tensor, own: tuple[Tensor, ...] | None) -> Tensor:
        return torch.logsumexp(_without(users @ items.T / tau, own), dim=1)

    parts = _parts(users, len(items), left_out)
    return torch.cat([checkpoint(part, users[rows], own, use_reentrant=False) for rows, own in parts])


def _parts(users: Tensor, n_items: int, left_out) -> Iterator[tuple[slice, tuple[Tensor, ...] | None]]:
    """Slices of users whose scores PyTorch holds at once, with the row and item of what is left out in each."""
    size = max(1, _PART // n_items)
    for start, stop in pairwise([*range(0, len(users), size), len(users)]):
        own = None
        if left_out is not None:
            indptr, indices = left_out
            row = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
            item = indices[indptr[start] : indptr[stop]]
            own = tuple(users.new_tensor(index, dtype=torch.int64) for index in (row, item))
        yield slice(start, stop), own


def _without(x: Tensor, own: tuple[Tensor, ...] | None) -> Tensor:
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
        columns = np.ascontiguousarray(in_blocks(users, n_blocks).transpose(0, 2, 1))
        return cls(columns.reshape(-1), items.reshape(-1), tail.reshape(-1), width, n_blocks, n_tiles)


def in_blocks(rows: np.ndarray, n_blocks: int) -> np.ndarray:
    """Rows (m, width) in blocks of USERS, (n_blocks, USERS, width), followed by zeros."""
    out = np.zeros((n_blocks * USERS, rows.shape[1]), rows.dtype)
    out[: len(rows)] = rows
    return out.reshape(n_blocks, USERS, -1)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, users: Tensor, items: Tensor, shift: Tensor, kind: int, scale: float, power: float, left_out) -> Tensor:
        given = _Arrays.of(users, items)
        n, dtype = given.n_blocks * USERS, given.items.dtype
        per_block = given.n_tiles * ITEMS * USERS
        at_once = max(1, _KEPT // (per_block * dtype.itemsize))
        shifts = np.zeros(n, dtype)
        shifts[: len(users)] = shift.detach().numpy()
        indptr, indices = left_out if left_out is not None else (np.zeros(len(users) + 1, np.int32), np.zeros(0, np.int32))
        sums, slopes, user_grad = np.zeros(n, dtype), np.zeros(n, dtype), np.zeros(n * given.width, dtype)
        kept = np.empty(min(at_once, given.n_blocks) * per_block, dtype)

        def add_up(start: int, stop: int, sums: np.ndarray, slopes: np.ndarray, user_grad: np.ndarray) -> None:
            """Compute the blocks start to stop, whose slopes fit into `kept`."""
            part, rows = slice(start * USERS, stop * USERS), slice(start * USERS, min(stop * USERS, len(users)) + 1)
            columns = given.columns[start * given.width * USERS : stop * given.width * USERS]
            numbers = (dtype.type(scale), dtype.type(power))
            gradient = user_grad[start * USERS * given.width : stop * USERS * given.width]
            arrays = shifts[part], left_out is not None, indptr[rows], indices, kept, sums[part], slopes[part], gradient
            sizes = len(items), given.width
            fixed = kind, columns, given.items, given.tail, *sizes, *numbers, *arrays
            in_parallel(kernels.add_up, stop - start, len(users) * len(items), *fixed)

        parts = [*pairwise([*range(0, given.n_blocks, at_once), given.n_blocks])]
        for start, stop in parts:
            add_up(start, stop, sums, slopes, user_grad)
        ctx.given, ctx.parts, ctx.kept, ctx.scale, ctx.sizes = given, parts, kept, scale, (users.shape, items.shape)
        ctx.user_grad, ctx.slopes, ctx.users = user_grad, slopes, padded(users)
        scratch = [np.empty_like(sums), np.empty_like(slopes), np.empty_like(user_grad)] if len(parts) > 1 else []
        ctx.again = lambda start, stop: add_up(start, stop, *scratch)
        return torch.from_numpy(sums[: len(users)].copy())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        given, (user_shape, item_shape) = ctx.given, ctx.sizes
        weight = grad.numpy()[:, None]
        own = ctx.slopes[: len(weight)]
        d_shift = torch.from_numpy(-weight[:, 0] * own)
        user_grad = ctx.user_grad.reshape(-1, given.width)[: len(weight)] * (weight * ctx.scale)
        weighted = in_blocks(ctx.users * (weight * ctx.scale).astype(ctx.users.dtype), given.n_blocks)
        item_grad, tail_grad = np.empty(item_shape[0] * given.width, own.dtype), np.empty(ITEMS * given.width, own.dtype)
        for start, stop in ctx.parts:
            if len(ctx.parts) > 1:
                ctx.again(start, stop)
            rows = weighted[start:stop].reshape(-1)
            arrays = ctx.kept, rows, stop - start, item_shape[0], given.width, start == 0, item_grad, tail_grad
            in_parallel(kernels.spread_back, given.n_tiles, user_shape[0] * item_shape[0], *arrays)
        item_grad = item_grad.reshape(-1, given.width)
        rest = item_shape[0] - (given.n_tiles - 1) * ITEMS
        item_grad[(given.n_tiles - 1) * ITEMS :] = tail_grad.reshape(-1, given.width)[:rest]
        d_users, d_items = (torch.from_numpy(each[:, : user_shape[1]]) for each in (user_grad, item_grad))
        return d_users, d_items, d_shift, None, None, None, None
