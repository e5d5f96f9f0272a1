"""A layer of NGCF's program for the rows of some nodes, with its gradient: products, activations, dropout and unit rows.

    S = share ∘ T + own · E,    H = f(S W + b) + f((S ∘ E) V + c),    out = dropout(H),    unit = out/|out|

T are the sums over neighbours, `share` a number per node, `own` 0 or 1, and f LeakyReLU. On the CPU, a compiled loop takes
blocks of rows that stay in the cache through all of it, and keeps two signs per number for the gradient. Dropout is drawn from
a key and the position, so that the backward pass draws it again. `plain_layer` is the same in PyTorch, for other devices and
for tests. A block is computed by one thread, and sums over blocks are taken in their order, so the bits do not depend on the
number of threads.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import leaky_relu, normalize

from rankbench.core.devices import compiled
from rankbench.core.splitmix import bits
from rankbench.kernels.parallel import in_parallel

SLOPE = 0.2
ROWS = 1024  # rows of a block
_TINY = 1e-12  # the smallest length that a row is divided by


def ngcf_layer(
    T: Tensor, E: Tensor, share: Tensor, own: bool, weights: tuple[Tensor, Tensor, Tensor, Tensor], rate: float, key: int
) -> tuple[Tensor, Tensor]:
    """`out` and `unit`, (n, d), for T and E (n, d), `share` (n,) and weights W (d, d), b (1, d), V (d, d), c (1, d).

    `rate` is the share of numbers that dropout sets to 0, drawn by `key`. Differentiable once in T, E and the weights.
    """
    if not compiled(E.device):
        return plain_layer(T, E, share, own, weights, rate, key)
    return _Layer.apply(T, E, share, own, rate, key, *weights)


def plain_layer(
    T: Tensor, E: Tensor, share: Tensor, own: bool, weights: tuple[Tensor, Tensor, Tensor, Tensor], rate: float, key: int
) -> tuple[Tensor, Tensor]:
    W, b, V, c = weights
    S = share[:, None] * T + E if own else share[:, None] * T
    H = leaky_relu(S @ W + b, SLOPE) + leaky_relu((S * E) @ V + c, SLOPE)
    if rate:
        kept = np.empty(H.shape, np.bool_)
        _draw(np.uint64(key), _threshold(rate), kept)
        H = H * (torch.from_numpy(kept).to(H) / (1 - rate))
    return H, normalize(H, dim=1, eps=_TINY)


def _threshold(rate: float) -> np.uint64:
    return np.uint64(rate * 2**32)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, T, E, share, own, rate, key, W, b, V, c):
        T, E, share, W, b, V, c = (each.detach().contiguous().numpy() for each in (T, E, share, W, b, V, c))
        dtype, n_blocks = E.dtype.type, -(-len(E) // ROWS)
        ctx.fixed = share, dtype(own), dtype(1 / (1 - rate)), _threshold(rate), np.uint64(key)
        out, unit, signs = np.empty_like(E), np.empty_like(E), np.empty(E.shape, np.uint8)
        in_parallel(_forward, n_blocks, E.size, T, E, *ctx.fixed, W, b[0], V, c[0], out, unit, signs)
        ctx.arrays = T, E, W, V, out, unit, signs
        ctx.set_materialize_grads(False)
        return torch.from_numpy(out), torch.from_numpy(unit)

    @staticmethod
    @once_differentiable
    def backward(ctx, out_grad, unit_grad):
        T, E, W, V, out, unit, signs = ctx.arrays
        given = [np.zeros((0, 0), E.dtype) if each is None else each.contiguous().numpy() for each in (out_grad, unit_grad)]
        n_blocks, d = -(-len(E) // ROWS), E.shape[1]
        d_T, d_E = np.empty_like(T), np.empty_like(E)
        parts = [np.empty((n_blocks, *shape), E.dtype) for shape in ((d, d), (d,), (d, d), (d,))]
        transposed = np.ascontiguousarray(W.T), np.ascontiguousarray(V.T)
        arrays = *transposed, out, unit, signs, *given, d_T, d_E, *parts
        in_parallel(_backward, n_blocks, E.size, T, E, *ctx.fixed, *arrays)
        d_W, d_b, d_V, d_c = (torch.from_numpy(part.sum(axis=0)) for part in parts)
        return torch.from_numpy(d_T), torch.from_numpy(d_E), None, None, None, None, d_W, d_b[None], d_V, d_c[None]


@numba.njit(cache=True)
def _draw(key, threshold, kept):
    n, d = kept.shape
    for row in range(n):
        for k in range(d):
            kept[row, k] = (bits(key, row * d + k) >> np.uint64(32)) >= threshold


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _forward(T, E, share, own, scale, threshold, key, W, b, V, c, out, unit, signs, start, stop):
    n, d = E.shape
    tiny = scale * 0 + _TINY
    slope = scale * 0 + SLOPE
    for block in range(start, stop):
        begin, end = block * ROWS, min((block + 1) * ROWS, n)
        S = np.empty((end - begin, d), E.dtype)
        X = np.empty((end - begin, d), E.dtype)
        for r in range(end - begin):
            t, e, factor = T[begin + r], E[begin + r], share[begin + r]
            for k in range(d):
                S[r, k] = factor * t[k] + own * e[k]
                X[r, k] = S[r, k] * e[k]
        P, Q = np.dot(S, W), np.dot(X, V)
        for r in range(end - begin):
            row = begin + r
            length = tiny * 0
            for k in range(d):
                p, q = P[r, k] + b[k], Q[r, k] + c[k]
                first, second = not p <= 0, not q <= 0  # a NaN passes through unchanged
                signs[row, k] = first + 2 * second
                h = (p if first else slope * p) + (q if second else slope * q)
                if threshold > 0:
                    h = h * scale if (bits(key, row * d + k) >> np.uint64(32)) >= threshold else h * 0
                out[row, k] = h
                length += h * h
            length = max(np.sqrt(length), tiny)
            for k in range(d):
                unit[row, k] = out[row, k] / length


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _backward(
    T, E, share, own, scale, threshold, key, Wt, Vt, out, unit, signs, out_grad, unit_grad,
    d_T, d_E, d_W, d_b, d_V, d_c, start, stop,
):  # fmt: skip
    n, d = E.shape
    tiny = scale * 0 + _TINY
    slope = scale * 0 + SLOPE
    for block in range(start, stop):
        begin, end = block * ROWS, min((block + 1) * ROWS, n)
        S, X = np.empty((end - begin, d), E.dtype), np.empty((end - begin, d), E.dtype)
        dP, dQ = np.empty((end - begin, d), E.dtype), np.empty((end - begin, d), E.dtype)
        d_b[block] = 0
        d_c[block] = 0
        for r in range(end - begin):
            row = begin + r
            t, e, factor = T[row], E[row], share[row]
            along, length = tiny * 0, tiny * 0
            if len(unit_grad):
                for k in range(d):
                    along += unit_grad[row, k] * unit[row, k]
                    length += out[row, k] * out[row, k]
                length = max(np.sqrt(length), tiny)
            for k in range(d):
                g = tiny * 0
                if len(out_grad):
                    g += out_grad[row, k]
                if len(unit_grad):
                    g += (unit_grad[row, k] - along * unit[row, k]) / length
                if threshold > 0:
                    g = g * scale if (bits(key, row * d + k) >> np.uint64(32)) >= threshold else g * 0
                sign = signs[row, k]
                dP[r, k] = g if sign & 1 else slope * g
                dQ[r, k] = g if sign & 2 else slope * g
                d_b[block, k] += dP[r, k]
                d_c[block, k] += dQ[r, k]
                S[r, k] = factor * t[k] + own * e[k]
                X[r, k] = S[r, k] * e[k]
        d_W[block] = np.dot(S.T, dP)
        d_V[block] = np.dot(X.T, dQ)
        dS, dX = np.dot(dP, Wt), np.dot(dQ, Vt)
        for r in range(end - begin):
            row = begin + r
            e, factor = E[row], share[row]
            for k in range(d):
                s = dS[r, k] + dX[r, k] * e[k]
                d_T[row, k] = factor * s
                d_E[row, k] = own * s + dX[r, k] * S[r, k]
