"""A layer of NGCF's program for the rows of some nodes: products, activations, dropout and unit rows.

    S = share ∘ T + own · E,    H = f(S W + b) + f((S ∘ E) V + c),    out = dropout(H),    unit = out/|out|

T are the sums over neighbours, `share` a number per node, `own` 0 or 1, and f LeakyReLU. Dropout is drawn from a key and the
position. `ngcf_layer` is in PyTorch, for all devices. The compiled loops below are parts of `models/ngcf_rows.py`, on the CPU:
they keep two signs per number for the gradient, and the backward pass draws the dropout again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, normalize

from rankbench.core.compiler import numba
from rankbench.core.splitmix import bits

SLOPE = 0.2
TINY = 1e-12  # the smallest length that a row is divided by


def ngcf_layer(
    T: Tensor, E: Tensor, share: Tensor, own: bool, weights: tuple[Tensor, Tensor, Tensor, Tensor], rate: float, key: int
) -> tuple[Tensor, Tensor]:
    """`out` and `unit`, (n, d), for T and E (n, d), `share` (n,) and weights W (d, d), b (1, d), V (d, d), c (1, d).

    `rate` is the share of numbers that dropout sets to 0, drawn by `key`.
    """
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
    return (dtype(SLOPE), dtype(0)), dtype(1 / (1 - rate)), _threshold(rate)


@numba.njit(cache=True)
def _draw(key, threshold, kept):
    n, d = kept.shape
    for row in range(n):
        for k in range(d):
            kept[row, k] = (bits(key, row * d + k) >> np.uint64(32)) >= threshold


@numba.njit(nogil=True, cache=True)
def inputs_back(dS, dX, S, E, share, own, d_T, d_E):
    n, d = E.shape
    for r in range(n):
        for k in range(d):
            s = dS[r, k] + dX[r, k] * E[r, k]
            d_T[r, k] = share[r] * s
            d_E[r, k] = own * s + dX[r, k] * S[r, k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def activate(P, Q, b, c, small, scale, threshold, key, drawn, out, signs):
    """From the products P and Q of rows whose numbers for dropout are `drawn`."""
    n, d = P.shape
    slope, zero = small
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


@numba.njit(nogil=True, cache=True, error_model="numpy")
def activate_back(signs, out_grad, small, scale, threshold, key, drawn, dP, dQ, d_b, d_c):
    n, d = signs.shape
    slope, zero = small
    d_b[:] = 0
    d_c[:] = 0
    for r in range(n):
        for k in range(d):
            g = out_grad[r, k]
            if threshold > 0:
                kept = (bits(key, drawn[r] * d + k) >> np.uint64(32)) >= threshold
                g *= scale if kept else zero
            dP[r, k] = g if signs[r, k] & 1 else slope * g
            dQ[r, k] = g if signs[r, k] & 2 else slope * g
            d_b[k] += dP[r, k]
            d_c[k] += dQ[r, k]
