"""A layer of NGCF's program for the rows of some nodes, with its gradient: products, activations, dropout and unit rows.

    S = share ∘ T + own · E,    H = f(S W + b) + f((S ∘ E) V + c),    out = dropout(H),    unit = out/|out|

T are the sums over neighbours, `share` a number per node, `own` 0 or 1, and f LeakyReLU. On the CPU, a compiled loop takes
blocks of rows that stay in the cache through all of it, and keeps two signs per number for the gradient. Dropout is drawn from
a key and the position, so that the backward pass draws it again. `plain_layer` is the same in PyTorch, for other devices and
for tests. A block is computed by one thread, and sums over blocks are taken in their order, so the bits do not depend on the
number of threads.
"""

from __future__ import annotations

from typing import Any

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
TINY = 1e-12  # the smallest length that a row is divided by


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
    return H, normalize(H, dim=1, eps=TINY)


def _threshold(rate: float) -> np.uint64:
    return np.uint64(rate * 2**32)


def numbers_of(dtype, rate: float) -> tuple[tuple, Any, np.uint64]:
    """Constants of the layer, in its dtype, because others make the compiled loops slow; and those of dropout."""
    return (dtype(TINY), dtype(SLOPE), dtype(0)), dtype(1 / (1 - rate)), _threshold(rate)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, T, E, share, own, rate, key, W, b, V, c):
        T, E, share, W, b, V, c = (each.detach().contiguous().numpy() for each in (T, E, share, W, b, V, c))
        dtype, n_blocks = E.dtype.type, -(-len(E) // ROWS)
        ctx.fixed = share, dtype(own), *numbers_of(dtype, rate), np.uint64(key)
        out, unit, signs = np.empty_like(E), np.empty_like(E), np.empty(E.shape, np.uint8)
        in_parallel(_forward, n_blocks, E.size, T, E, *ctx.fixed, W, b[0], V, c[0], out, unit, signs)
        ctx.arrays = T, E, W, V, out, unit, signs
        ctx.set_materialize_grads(False)
        return torch.from_numpy(out), torch.from_numpy(unit)

    @staticmethod
    @once_differentiable
    def backward(ctx, out_grad, unit_grad):
        T, E, W, V, out, unit, signs = ctx.arrays
        nothing = np.zeros((0, E.shape[1]), E.dtype)
        given = [nothing if each is None else each.contiguous().numpy() for each in (out_grad, unit_grad)]
        n_blocks, d = -(-len(E) // ROWS), E.shape[1]
        d_T, d_E = np.empty_like(T), np.empty_like(E)
        parts = [np.empty((n_blocks, *shape), E.dtype) for shape in ((d, d), (d,), (d, d), (d,))]
        arrays = W, V, out, unit, signs, *given, d_T, d_E, *parts
        in_parallel(_backward, n_blocks, E.size, T, E, *ctx.fixed, *arrays)
        d_W, d_b, d_V, d_c = (torch.from_numpy(part.sum(axis=0)) for part in parts)
        return torch.from_numpy(d_T), torch.from_numpy(d_E), None, None, None, None, d_W, d_b[None], d_V, d_c[None]


@numba.njit(cache=True)
def _draw(key, threshold, kept):
    n, d = kept.shape
    for row in range(n):
        for k in range(d):
            kept[row, k] = (bits(key, row * d + k) >> np.uint64(32)) >= threshold


def _forward(T, E, share, own, small, scale, threshold, key, W, b, V, c, out, unit, signs, start, stop) -> None:
    """`out`, `unit` and `signs` of the blocks start to stop. Products are NumPy's, whose BLAS has one thread during a fit."""
    S, X = (np.empty((ROWS, E.shape[1]), E.dtype) for _ in range(2))
    for begin in range(start * ROWS, min(stop * ROWS, len(E)), ROWS):
        rows = slice(begin, min(begin + ROWS, len(E)))
        n = rows.stop - begin
        _inputs(T[rows], E[rows], share[rows], own, S, X)
        activate(
            S[:n] @ W,
            X[:n] @ V,
            b,
            c,
            small,
            scale,
            threshold,
            key,
            np.arange(begin, begin + n),
            out[rows],
            unit[rows],
            signs[rows],
        )


def _backward(
    T, E, share, own, small, scale, threshold, key, W, V, out, unit, signs, out_grad, unit_grad,
    d_T, d_E, d_W, d_b, d_V, d_c, start, stop,
) -> None:  # fmt: skip
    """The gradients of T and E, and of the weights for each of the blocks start to stop."""
    S, X, dP, dQ = (np.empty((ROWS, E.shape[1]), E.dtype) for _ in range(4))
    for block in range(start, stop):
        begin = block * ROWS
        rows = slice(begin, min(begin + ROWS, len(E)))
        n = rows.stop - begin
        _inputs(T[rows], E[rows], share[rows], own, S, X)
        given = out[rows], unit[rows], signs[rows], out_grad[rows], unit_grad[rows]
        activate_back(*given, small, scale, threshold, key, np.arange(begin, begin + n), dP, dQ, d_b[block], d_c[block])
        np.matmul(S[:n].T, dP[:n], out=d_W[block])
        np.matmul(X[:n].T, dQ[:n], out=d_V[block])
        inputs_back(dP[:n] @ W.T, dQ[:n] @ V.T, S, E[rows], share[rows], own, d_T[rows], d_E[rows])


@numba.njit(nogil=True, cache=True)
def _inputs(T, E, share, own, S, X):
    n, d = E.shape
    for r in range(n):
        for k in range(d):
            S[r, k] = share[r] * T[r, k] + own * E[r, k]
            X[r, k] = S[r, k] * E[r, k]


@numba.njit(nogil=True, cache=True)
def inputs_back(dS, dX, S, E, share, own, d_T, d_E):
    n, d = E.shape
    for r in range(n):
        for k in range(d):
            s = dS[r, k] + dX[r, k] * E[r, k]
            d_T[r, k] = share[r] * s
            d_E[r, k] = own * s + dX[r, k] * S[r, k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def activate(P, Q, b, c, small, scale, threshold, key, drawn, out, unit, signs):
    """From the products P and Q of rows whose numbers for dropout are `drawn`. `unit` may have no rows."""
    n, d = P.shape
    tiny, slope, zero = small
    for r in range(n):
        for k in range(d):
            p, q = P[r, k] + b[k], Q[r, k] + c[k]
            first, second = not p <= zero, not q <= zero  # a NaN passes through unchanged
            signs[r, k] = first + 2 * second
            out[r, k] = (p if first else slope * p) + (q if second else slope * q)
        if threshold > 0:
            for k in range(d):
                kept = (bits(key, drawn[r] * d + k) >> np.uint64(32)) >= threshold
                out[r, k] *= scale if kept else zero
        if len(unit):
            length = zero
            for k in range(d):
                length += out[r, k] * out[r, k]
            length = max(np.sqrt(length), tiny)
            for k in range(d):
                unit[r, k] = out[r, k] / length


@numba.njit(nogil=True, cache=True, error_model="numpy")
def activate_back(out, unit, signs, out_grad, unit_grad, small, scale, threshold, key, drawn, dP, dQ, d_b, d_c):
    n, d = signs.shape
    tiny, slope, zero = small
    g = np.empty(d, dP.dtype)
    d_b[:] = 0
    d_c[:] = 0
    for r in range(n):
        g[:] = zero
        if len(out_grad):
            g[:] = out_grad[r]
        if len(unit_grad):
            along, length = zero, zero
            for k in range(d):
                along += unit_grad[r, k] * unit[r, k]
                length += out[r, k] * out[r, k]
            length = max(np.sqrt(length), tiny)
            for k in range(d):
                g[k] += (unit_grad[r, k] - along * unit[r, k]) / length
        if threshold > 0:
            for k in range(d):
                kept = (bits(key, drawn[r] * d + k) >> np.uint64(32)) >= threshold
                g[k] *= scale if kept else zero
        for k in range(d):
            dP[r, k] = g[k] if signs[r, k] & 1 else slope * g[k]
            dQ[r, k] = g[k] if signs[r, k] & 2 else slope * g[k]
            d_b[k] += dP[r, k]
            d_c[k] += dQ[r, k]
