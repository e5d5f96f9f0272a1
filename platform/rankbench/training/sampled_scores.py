"""Sums over the scores of sampled items, compiled: log-sum-exp in one pass per direction, where PyTorch takes nine, and hinges.

Each row is computed by one thread in a fixed order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba.core import cgutils
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.core.simd import LANES, Numbers, integer, kernel, spread, total
from rankbench.kernels.parallel import in_parallel
from rankbench.kernels.rows import gather_dot
from rankbench.losses.others import ScoreTable
from rankbench.training.soft_ranks import SmoothPrecision

_LOWEST = -1e30  # a score whose exponential is 0 beside that of any other


@dataclass(frozen=True)
class SampledScores(ScoreTable):
    def logsumexp(self, tau: float = 1.0) -> Tensor:
        values = self.values
        if not compiled(values.device) or not values.shape[1]:
            return super().logsumexp(tau)
        return _LogSumExp.apply(values, tau)

    def above(self, shift: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        if weight is not None or not compiled(self.values.device):
            return super().above(shift, weight)
        x = self.values.detach().contiguous().numpy()
        out = np.empty((3, len(x)), x.dtype)
        in_parallel(_above, len(x), x.size, x, shift.detach().contiguous().numpy(), *out)
        hinges, total, above = torch.from_numpy(out)
        return hinges, total, above

    def smooth_precision(self, pos: Tensor, K: int, tau: float, delta: float, together: bool = False) -> Tensor:
        if not compiled(self.values.device):
            return super().smooth_precision(pos, K, tau, delta, together)
        return SmoothPrecision.apply(pos, self.values, K, tau, delta, together)

    def _products(self, users: Tensor, items: Tensor) -> Tensor:
        return super()._products(users, items) if len(self.ids) == 1 else gather_dot(users, items, self.ids)


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, tau: float) -> Tensor:
        x = values.detach().contiguous().numpy()
        powers, sums, top = np.empty_like(x), np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
        number = x.dtype.type
        arrays = x.reshape(-1), x.shape[1], number(1 / tau), powers.reshape(-1), sums, top
        in_parallel(_exponentials, len(x), x.size, *arrays)
        ctx.powers, ctx.sums, ctx.tau = powers, sums, tau
        return torch.from_numpy(top / number(tau) + np.log(sums))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weight = grad.numpy() / (ctx.sums * ctx.sums.dtype.type(ctx.tau))
        return torch.from_numpy(ctx.powers) * torch.from_numpy(weight)[:, None], None


@kernel
def _exp(builder, x, at, n_vectors, scale, top, out, to, sums, row):
    """out[to:] = exp(scale · (x[at:] − top)) for so many vectors, whose sum is added to sums[row]."""
    numbers = Numbers(builder, x.type)
    factor, largest = spread(builder, x.type, scale), spread(builder, x.type, top)
    together = cgutils.alloca_once(builder, x.type)
    builder.store(x.zero, together)
    with cgutils.for_range(builder, n_vectors) as loop:
        offset = builder.mul(loop.index, integer(LANES))
        value = numbers.exp(builder.fmul(builder.fsub(x.load(builder.add(at, offset)), largest), factor))
        out.store(value, builder.add(to, offset))
        builder.store(builder.fadd(builder.load(together), value), together)
    place = builder.gep(sums.data, [row])
    builder.store(builder.fadd(builder.load(place), total(builder, builder.load(together))), place)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _exponentials(x, n, scale, out, sums, top, start, stop):
    """For rows start to stop of x, flat (rows, n): the largest score, exp(scale · (x − largest)), and its sum."""
    whole = n - n % LANES
    last, last_out = np.empty(LANES, x.dtype), np.empty(LANES, x.dtype)
    for row in range(start, stop):
        first, largest = row * n, x[row * n]
        for j in range(first + 1, first + n):
            largest = max(largest, x[j])
        top[row], sums[row] = largest, 0
        _exp(x, np.int64(first), np.int64(whole // LANES), scale, largest, out, np.int64(first), sums, np.int64(row))
        if whole < n:
            last[:] = _LOWEST
            last[: n - whole] = x[first + whole : first + n]
            _exp(last, np.int64(0), np.int64(1), scale, largest, last_out, np.int64(0), sums, np.int64(row))
            out[first + whole : first + n] = last_out[: n - whole]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
def _above(x, shift, hinges, total, above, start, stop):
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for row in range(start, stop):
        given, least = x[row], shift[row]
        hinge, together, number = zero, zero, zero
        for j in range(len(given)):
            y = given[j] - least
            over = y > zero
            hinge += y if over else zero
            together += y
            number += one if over else zero
        hinges[row], total[row], above[row] = hinge, together, number
