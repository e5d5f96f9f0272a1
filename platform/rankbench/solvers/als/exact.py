"""Exact row solves, sixteen rows at a time, by the dual system if a row has fewer interactions than dimensions.

In the eigenbasis of the shared Gram, the system of a row is (D + Σ y yᵀ) x = t₀ h + Σ τ y with D diagonal, over the row's
positives y. Scaled by D^-½ it is I plus a product of the row's vectors Ỹ with themselves:

    m ≥ K    (I + ỸᵀỸ) D^½ x = D^-½ b                                  K x K
    m < K    (I + ỸỸᵀ) z = τ − Ỹ D^-½ t₀ h,    D^½ x = D^-½ t₀ h + Ỹᵀ z       m x m, by Woodbury's identity

Both are positive definite, and no eigenvalue is below 1 for any data. Rows are sorted by their number of interactions, so the
rows that are solved together (`simd.py`) have about equally many; a shorter row is padded with zero vectors.
"""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.solvers.als.simd import (
    LANES,
    TILE,
    add_dot,
    add_product,
    combine,
    factor_tile,
    gather_transposed,
    prefetch_row,
    scale_lanes,
    solve_tile,
    subtract_dot,
    subtract_dots,
    subtract_product,
)

CHUNK = LANES  # dimensions, or interactions, that are transposed and multiplied at a time


def exact_cycles(m: np.ndarray, K: int) -> np.ndarray:
    """Approximate number of processor cycles of `solve_exact` for rows of m interactions each. Fitted to one machine."""
    small = np.minimum(m, K)
    return m * K * (1 + small / 50) + small**3 / 96 + 10 * K


@numba.njit(nogil=True, cache=True, error_model="numpy")
def solve_exact(indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, out):
    """Solve for x (n_rows, K), which is stored in `out`.

    With `w0`, `t0` and `reg` (n_rows,), D is w0 · spectrum + reg and the right side is t0 · h. `w1` (n_rows,) are the square
    roots of the positives' weights, and `t1` (n_rows,) times `ratio` (n_cols,) are their targets over these roots. `Y` (n_cols
    + 1, K) holds the rotated vectors of the columns times the roots of the columns' weights; its last row is zero, and K is a
    multiple of LANES. Where D is below `floor` times its largest element, neither the Gram nor the regulariser determines x,
    and x is 0.
    """
    n_rows, K = len(indptr) - 1, Y.shape[1]
    flat = Y.reshape(-1)
    longest = max(K, np.diff(indptr).max())
    longest += -longest % CHUNK
    zeros = (Y.shape[0] - 1) * K  # offset of the row of zeros
    # An extra row of tiles below the matrix holds the right side, so that factoring also does the forward substitution.
    size = K + TILE
    S = np.empty(size * size * LANES, Y.dtype)
    block = np.empty(max(K, size) * CHUNK * LANES, Y.dtype)
    root, scale, start = np.empty(K * LANES, Y.dtype), np.empty(K * LANES, Y.dtype), np.empty(K * LANES, Y.dtype)
    own = np.empty((5, LANES), Y.dtype)
    offsets = np.empty(longest * LANES, np.int64)
    tau = np.empty(longest * LANES, Y.dtype)
    places, weights = np.empty(K, np.int64), np.empty(K, Y.dtype)
    for first in range(0, n_rows, LANES):
        m = np.diff(indptr[first : first + LANES + 1]).max()
        _prepare(
            first, m, indptr, indices, w0, w1, t0, t1, reg, ratio, spectrum, h, floor, zeros,
            own, root, scale, start, offsets, tau,
        )  # fmt: skip
        if m < K:
            _dual(m, flat, offsets, tau, scale, start, S, block, K)
        else:
            _primal(m, flat, offsets, tau, scale, start, S, block, K)
        for lane in range(min(LANES, n_rows - first)):
            row = first + lane
            x = out[row]
            if m < K:
                length = indptr[row + 1] - indptr[row]
                _from_dual(flat, length, offsets, tau, lane, spectrum, h, own[:, lane], places, weights, x)
            else:
                for k in range(K):
                    x[k] = root[k * LANES + lane] * tau[k * LANES + lane]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _prepare(
    first, m, indptr, indices, w0, w1, t0, t1, reg, ratio, spectrum, h, floor, zeros, own, root, scale, start, offsets, tau
):
    """For sixteen rows: their coefficients `own`, what `scale_lanes` makes of them, the offsets of vectors, and targets."""
    n_rows, K, top = len(indptr) - 1, len(spectrum), spectrum.max()
    padded = m + -m % CHUNK
    for lane in range(LANES):
        row = min(first + lane, n_rows - 1)
        own[0, lane], own[1, lane], own[2, lane], own[3, lane] = w0[row], reg[row], w1[row], t0[row]
        own[4, lane] = floor * (w0[row] * top + reg[row])
        begin = indptr[row]
        length = indptr[row + 1] - begin if first + lane < n_rows else 0
        for i in range(length):
            column = indices[begin + i]
            offsets[i * LANES + lane] = numba.int64(column) * K
            tau[i * LANES + lane] = t1[row] * ratio[column]
        for i in range(length, padded):
            offsets[i * LANES + lane] = zeros
            tau[i * LANES + lane] = 0
    scale_lanes(own.reshape(-1), spectrum, h, K, root, scale, start)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _dual(m, flat, offsets, tau, scale, start, S, block, K):
    """Solve for z (m,) in every SIMD lane, which is stored in `tau`."""
    n = (m + TILE - 1) // TILE * TILE
    stride = n * LANES
    S[: (n + TILE) * stride] = 0
    right = n * stride
    S[right : right + stride] = tau[:stride]
    for k in range(0, K, CHUNK):
        for i in range(n):
            gather_transposed(flat, offsets, i * LANES, k, scale, k * LANES, block, i * CHUNK * LANES, LANES)
        for i in range(0, n, TILE):
            a = i * CHUNK * LANES
            subtract_dots(S, right + i * LANES, block, a, CHUNK * LANES, LANES, start, k * LANES, LANES, CHUNK)
            for j in range(0, i + TILE, TILE):
                at = i * stride + j * LANES
                b = j * CHUNK * LANES
                add_product(S, at, stride, block, a, CHUNK * LANES, block, b, CHUNK * LANES, CHUNK)
    solve_lanes(S, n, tau)


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=True)
def _from_dual(flat, m, offsets, z, lane, spectrum, h, own, places, weights, x):
    """Set x (K,) of one row of m interactions to D⁻¹ (t₀ h + √w1 Yᵀ z), of whose offsets and z the numbers are LANES apart from
    `lane` on. `places` and `weights` are memory for them side by side.
    """
    K = len(x)
    w0, reg, w1, t0, least = own[0], own[1], own[2], own[3], own[4]
    for i in range(m):
        places[i], weights[i] = offsets[i * LANES + lane], z[i * LANES + lane]
    combine(flat, K, places, 0, 0, m, weights, 0, x, 0)
    for k in range(K):
        d = w0 * spectrum[k] + reg
        x[k] = (t0 * h[k] + w1 * x[k]) / d if d > least else x.dtype.type(0)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _primal(m, flat, offsets, tau, scale, start, S, block, K):
    """Solve for D^½ x (K,) in every SIMD lane, which is stored in `tau`."""
    stride = K * LANES
    S[: (K + TILE) * stride] = 0
    right = K * stride
    S[right : right + stride] = start
    for i in range(0, m, CHUNK):
        for k in range(0, K, CHUNK):
            for r in range(CHUNK):
                o = (i + r) * LANES
                gather_transposed(flat, offsets, o, k, scale, k * LANES, block, (k * CHUNK + r) * LANES, CHUNK * LANES)
        for k in range(K):
            add_dot(S, right + k * LANES, block, k * CHUNK * LANES, 0, LANES, tau, i * LANES, LANES, CHUNK)
        n_next = LANES * min(CHUNK, m - i - CHUNK)
        for a in range(0, K, TILE):
            for next in range(a * n_next // K, (a + TILE) * n_next // K):
                prefetch_row(flat, K, offsets, (i + CHUNK) * LANES + next)
            for b in range(0, a + TILE, TILE):
                at = a * stride + b * LANES
                left, other = a * CHUNK * LANES, b * CHUNK * LANES
                add_product(S, at, stride, block, left, CHUNK * LANES, block, other, CHUNK * LANES, CHUNK)
    solve_lanes(S, K, tau)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def solve_lanes(S, n, x):
    """Solve (I + S) x = b for x (n,) in every SIMD lane; S (n, n) is stored by lower tiles, and b in the row of tiles below."""
    stride = n * LANES
    for i in range(n):
        for lane in range(LANES):
            S[i * stride + i * LANES + lane] += 1
    for j in range(0, n, TILE):
        diagonal = j * stride + j * LANES
        for i in range(j, n + TILE, TILE):
            subtract_product(S, i * stride + j * LANES, stride, S, i * stride, stride, S, j * stride, stride, j)
            if i == j:
                factor_tile(S, diagonal, stride)
            else:
                solve_tile(S, i * stride + j * LANES, diagonal, stride)
    right = n * stride
    for i in range(n - 1, -1, -1):
        below = (i + 1) * LANES
        subtract_dot(S, right + i * LANES, S, (i + 1) * stride + i * LANES, 0, stride, x, below, LANES, n - 1 - i)
        for lane in range(LANES):
            x[i * LANES + lane] = S[right + i * LANES + lane] * S[i * stride + i * LANES + lane]
