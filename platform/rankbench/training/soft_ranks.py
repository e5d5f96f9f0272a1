"""SmoothI's soft indicators of ranks, compiled: all K of a row while its scores are in the fastest cache.

PyTorch passes some ten times over the scores of a whole batch for each of the K ranks, and keeps K arrays for the gradient.
Here the gradient is added up on the way, since the recursion of c is a constant for it (see `losses/smoothi.py`):

    ∂ Σ_k I^k_0 / ∂ S_l = Σ_k c^k_l I^k_0 ([l = 0] − I^k_l) / τ

Each row is computed by one thread in a fixed order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch
from numba.core import cgutils
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES, Numbers, integer, kernel, spread, total
from rankbench.kernels.parallel import in_parallel

_LOWEST = -1e30  # a score whose indicator is 0


class SmoothPrecision(torch.autograd.Function):
    """`ScoreTable.smooth_precision` of pos (B,) and neg (B, n), on the CPU."""

    @staticmethod
    def forward(ctx, pos: Tensor, neg: Tensor, K: int, tau: float, delta: float, together: bool) -> Tensor:
        y = torch.cat([pos.detach()[:, None], neg.detach()], dim=1).numpy()
        number = y.dtype.type
        precision, slope = np.empty(len(y), y.dtype), np.empty_like(y)
        arrays = y, K, number(1 / tau), number(1 - delta), number(not together), precision, slope
        in_parallel(_precisions, len(y), y.size * K, *arrays)
        ctx.slope = slope
        return torch.from_numpy(precision)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        slope = torch.from_numpy(ctx.slope) * grad[:, None]
        return slope[:, 0], slope[:, 1:], None, None, None, None


@kernel
def _exp(builder, scores, left, n_vectors, top, out, sums):
    """out = exp(scores · left − top) for so many vectors; their sum goes to sums[0]."""
    numbers = Numbers(builder, scores.type)
    largest, together = spread(builder, scores.type, top), cgutils.alloca_once(builder, scores.type)
    builder.store(scores.zero, together)
    with cgutils.for_range(builder, n_vectors) as loop:
        at = builder.mul(loop.index, integer(LANES))
        value = numbers.exp(builder.fsub(builder.fmul(scores.load(at), left.load(at)), largest))
        out.store(value, at)
        builder.store(builder.fadd(builder.load(together), value), together)
    builder.store(total(builder, builder.load(together)), sums.data)


@kernel
def _next_rank(builder, scores, left, powers, n_vectors, inverse, first, keep, each, slope, best):
    """One step of the recursion: I = powers · inverse, slope −= first · left · I, left ·= keep − each · I.

    best becomes the largest scores · left of each lane.
    """
    numbers = Numbers(builder, scores.type)
    scale, positive, kept, own = (spread(builder, scores.type, value) for value in (inverse, first, keep, each))
    largest = cgutils.alloca_once(builder, scores.type)
    builder.store(numbers(-3e38), largest)
    with cgutils.for_range(builder, n_vectors) as loop:
        at = builder.mul(loop.index, integer(LANES))
        indicator, factor = builder.fmul(powers.load(at), scale), left.load(at)
        less = builder.fmul(builder.fmul(positive, factor), indicator)
        slope.store(builder.fsub(slope.load(at), less), at)
        factor = builder.fmul(factor, builder.fsub(kept, builder.fmul(own, indicator)))
        left.store(factor, at)
        value, most = builder.fmul(scores.load(at), factor), builder.load(largest)
        builder.store(numbers.where(">", value, most, value, most), largest)
    best.store(builder.load(largest), integer(0))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _precisions(y, K, scale, keep, each, precision, slope, start, stop):
    """For rows start to stop of y (rows, 1 + n): the mean of the first indicator over K ranks, and its gradient by y. A rank
    lowers `each` score (1) by its own indicator, or all scores (0) by the first one.
    """
    n = y.shape[1]
    width = -(-n // LANES) * LANES
    scores, left, powers, own = (
        np.empty(width, y.dtype),
        np.empty(width, y.dtype),
        np.empty(width, y.dtype),
        np.empty(width, y.dtype),
    )
    sums, best = np.empty(1, y.dtype), np.empty(LANES, y.dtype)
    vectors = np.int64(width // LANES)
    for row in range(start, stop):
        lowest, worst = y[row, 0], 0
        for j in range(1, n):
            if y[row, j] < lowest:
                lowest, worst = y[row, j], j
        top = y.dtype.type(0)
        for j in range(n):
            scores[j] = (y[row, j] - lowest) * scale
            top = max(top, scores[j])
        scores[n:] = _LOWEST
        left[:], own[:] = 1, 0
        result = y.dtype.type(0)
        for _ in range(K):
            _exp(scores, left, vectors, top, powers, sums)
            inverse = y.dtype.type(1) / sums[0]
            first = powers[0] * inverse
            result += first
            own[0] += left[0] * first
            kept = y.dtype.type(keep - (y.dtype.type(1) - each) * first)
            left[n:] = 1 if kept > 0 else -1  # so that the padding stays below all scores, also where a factor is negative
            _next_rank(scores, left, powers, vectors, inverse, first, kept, each, own, best)
            left[n:] = 1  # also where all factors are 0
            top = best.max()
        share, together = scale / y.dtype.type(K), 0.0  # in float64, since the sum is small beside its terms
        for j in range(n):
            slope[row, j] = own[j] * share
            together += slope[row, j]
        slope[row, worst] -= y.dtype.type(together)
        precision[row] = result / y.dtype.type(K)
