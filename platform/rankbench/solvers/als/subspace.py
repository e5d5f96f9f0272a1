"""Row solves by one sweep over subspaces, from the last iteration's vectors (Rendle et al., iALS++, 2021).

A block of d dimensions is solved for with all others held, then the next one. In the eigenbasis of the shared Gram, the system
of a row is A x = b with A = D + w1² Σ y yᵀ and b = t₀ h + w1 Σ τ y over the row's positives y, D diagonal. With the errors of
the positives e = τ − w1 yᵀx, the step of block π is

    x_π += (D_ππ + w1² Σ y_π y_πᵀ)⁻¹ (t₀ h_π − D_ππ x_π + w1 Σ e y_π),    and then e −= w1 y_πᵀ δ_π for the change δ_π

Differs from the paper: all blocks of a row are solved in turn, while its positives' vectors are in the cache, so that no errors
are kept between half steps. And the subspaces are spanned by eigenvectors of the Gram, which leave no product of the Gram with
x (in the paper, K x K operations per row). Each block gets eigenvectors of large and of small eigenvalues: see `dealt`.

Products run along the dimensions of one row. The blocks' systems are solved for sixteen rows at a time, as in `exact.py`.
"""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.solvers.als.exact import exact_cycles, solve_lanes
from rankbench.solvers.als.simd import LANES, TILE, combine, gather_transposed, outer, products


def dealt(dim: int, size: int) -> np.ndarray:
    """The order (dim,) of the eigenvectors: dealt out to the subspaces of `size` dimensions like cards, one at a time.

    Blocks of neighbours converge more slowly: the one of the largest eigenvalues holds most of what couples the dimensions.
    """
    return np.argsort(np.arange(dim) % -(-dim // size), kind="stable")


def sweep_is_cheaper(m: np.ndarray, K: int, size: int) -> np.ndarray:
    """Whether a sweep over subspaces takes fewer cycles than an exact solve, for rows of m interactions.

    The formula was fitted to one machine. Subspaces of 16 dimensions are cheaper for rows of 40 interactions or more.
    """
    return m * K * (0.6 + size / 20) + K * (20 + size * (0.5 + size / 96)) < exact_cycles(m, K)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def solve_subspaces(indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, size, x):
    """Overwrite x (n_rows, K), the rotated starting point, with the result of one sweep over subspaces of `size` dimensions.

    The other arguments are those of `solve_exact`; `size` is a multiple of LANES.
    """
    n_rows, K, size = len(indptr) - 1, Y.shape[1], min(size, Y.shape[1])
    flat, top, zeros = Y.reshape(-1), spectrum.max(), (Y.shape[0] - 1) * Y.shape[1]
    longest = np.diff(indptr).max()
    longest += -longest % LANES
    offsets, errors = np.empty((LANES, longest), np.int64), np.empty((LANES, longest), Y.dtype)
    diagonal, root, scale = np.empty((3, LANES, K), Y.dtype)
    dots, image, change = np.empty(LANES, Y.dtype), np.empty(K, Y.dtype), np.empty(K, Y.dtype)
    # Of each row, the block's matrix by rows; and of all, by tiles of vectors with one row per lane.
    own, starts = np.zeros(LANES * size * size, Y.dtype), np.empty(LANES, np.int64)
    S, ones = np.zeros((size + TILE) * size * LANES, Y.dtype), np.ones(LANES * LANES, Y.dtype)
    z = np.zeros(size * LANES, Y.dtype)
    for first in range(0, n_rows, LANES):
        rows = min(LANES, n_rows - first)
        for lane in range(rows):
            row = first + lane
            _begin(
                row, indptr, indices, w0, w1, t1, reg, flat, ratio, spectrum, floor * (w0[row] * top + reg[row]), zeros,
                offsets[lane], errors[lane], diagonal[lane], root[lane], scale[lane], x[row],
            )  # fmt: skip
        for start in range(0, K, size):
            d = min(size, K - start)
            right = d * d * LANES
            for lane in range(rows):
                row = first + lane
                m = indptr[row + 1] - indptr[row]
                combine(flat, d, offsets[lane], 0, start, m, errors[lane], 0, image, 0)
                for k in range(d):
                    at = start + k
                    gradient = t0[row] * h[at] - diagonal[lane, at] * x[row, at] + w1[row] * image[k]
                    S[right + k * LANES + lane] = root[lane, at] * gradient
                for a in range(0, d, LANES):
                    for b in range(0, a + LANES, LANES):
                        outer(
                            flat, offsets[lane], 0, m, start + a, start + b, scale[lane],
                            own, lane * d * d + a * d + b, d,
                        )  # fmt: skip
            for i in range(d):
                for lane in range(LANES):
                    starts[lane] = (lane * d + i) * d
                for j in range(0, i + 1, LANES):
                    gather_transposed(own, starts, 0, j, ones, 0, S, (i * d + j) * LANES, LANES)
            solve_lanes(S, d, z)
            for lane in range(rows):
                row = first + lane
                for k in range(d):
                    change[k] = root[lane, start + k] * z[k * LANES + lane]
                    x[row, start + k] += change[k]
                if start + d < K:
                    for i in range(0, indptr[row + 1] - indptr[row], LANES):
                        products(flat, d, offsets[lane], i, start, change, 0, dots, 0)
                        for lane_of in range(LANES):
                            errors[lane, i + lane_of] -= w1[row] * dots[lane_of]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _begin(
    row, indptr, indices, w0, w1, t1, reg, flat, ratio, spectrum, least, zeros, offsets, errors, diagonal, root, scale, u
):
    """Prepare a row: the offsets and errors of its interactions, D, D^-½ and √w1 D^-½; where D is too small, x is set to 0."""
    K, none = len(spectrum), flat.dtype.type(0)
    begin, m = indptr[row], indptr[row + 1] - indptr[row]
    for k in range(K):
        d = w0[row] * spectrum[k] + reg[row]
        diagonal[k] = d
        root[k] = 1 / np.sqrt(d) if d > least else none
        scale[k] = w1[row] * root[k]
        u[k] = u[k] if d > least else none
    for i in range(m):
        offsets[i] = numba.int64(indices[begin + i]) * K
    for i in range(m, m + -m % LANES):
        offsets[i] = zeros
    for i in range(0, m, LANES):
        products(flat, K, offsets, i, 0, u, 0, errors, i)
    for i in range(m):
        errors[i] = t1[row] * ratio[indices[begin + i]] - w1[row] * errors[i]
