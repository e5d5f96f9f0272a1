"""Row solves by a few steps of conjugate gradients, from where the last iteration ended; exact where that is cheaper.

In the eigenbasis of the shared Gram the system is diagonal but for the row's own interactions, and the diagonal preconditions
it: with u = D^½ x the steps are for (I + ỸᵀỸ) u = D^-½ b. A step costs 4 m K operations for m interactions, and no product
with a K x K matrix.
"""

from __future__ import annotations

import numba
import numpy as np

from rankbench.solvers.als.exact import solve_exact
from rankbench.solvers.als.lanes import LANES, add_images


@numba.njit(nogil=True, cache=True)
def solve_gradients(indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, steps, x):
    """x (n_rows, K), the rotated start, becomes the result. Arguments as of `solve_exact`; rows sorted, longest first."""
    K = Y.shape[1]
    # Longer rows take steps, the others an exact solve, which costs them less: whole vectors of lanes, counted from the front.
    n_rows, border = len(indptr) - 1, 0
    while border < n_rows:
        last = min(border + LANES, n_rows) - 1
        if not steps_are_cheaper(indptr[last + 1] - indptr[last], K, steps):
            break
        border = last + 1
    root = np.empty(K, Y.dtype)
    u, residual, direction, scaled, image = np.empty((5, K), Y.dtype)
    flat = Y.reshape(-1)
    for row in range(border):
        least = floor * (w0[row] * spectrum.max() + reg[row])
        for k in range(K):
            d = w0[row] * spectrum[k] + reg[row]
            root[k] = 1 / np.sqrt(d) if d > least else d * 0
            u[k] = x[row, k] / root[k] if root[k] > 0 else d * 0
        _steps(
            flat, indices, indptr[row], indptr[row + 1], ratio, w1[row], t0[row], t1[row], h, root, steps,
            u, residual, direction, scaled, image,
        )  # fmt: skip
        for k in range(K):
            x[row, k] = root[k] * u[k]
    if border < n_rows:
        solve_exact(
            indptr[border:], indices, w0[border:], w1[border:], t0[border:], t1[border:], reg[border:],
            Y, ratio, spectrum, h, floor, x[border:],
        )  # fmt: skip


@numba.njit(cache=True)
def steps_are_cheaper(m, K, steps):
    """Whether `steps` steps for a row of m interactions take fewer cycles than an exact solve, sixteen rows at a time.

    Fitted to one machine. Up to K = 128 they never are, at K = 256 they are for most rows.
    """
    small = min(m, K)
    exact = m * K * (1 + small / 50) + small**3 / 96
    return m * (steps + 1) * (K + 20) + 30 * steps * K < exact


@numba.njit(nogil=True, cache=True, fastmath=True)
def _steps(flat, indices, begin, end, ratio, w1, t0, t1, h, root, steps, u, residual, direction, scaled, image):
    """`steps` steps for one row, from u and to u = D^½ x; the last four arrays are room to work in."""
    K = len(u)
    none, one = flat.dtype.type(0), flat.dtype.type(1)
    # The residual D^-½ b − (I + ỸᵀỸ) u, in one pass over the interactions.
    for k in range(K):
        direction[k] = w1 * root[k] * u[k]
        image[k] = 0
    add_images(flat, K, indices, begin, end, ratio, t1, -one, direction, image)
    square = none
    for k in range(K):
        residual[k] = root[k] * (t0 * h[k] + w1 * image[k]) - u[k]
        square += residual[k] * residual[k]
    before = square
    for step in range(steps):
        if square <= 0:
            return
        for k in range(K):
            direction[k] = residual[k] + (square / before * direction[k] if step else none)
            scaled[k] = w1 * root[k] * direction[k]
            image[k] = 0
        add_images(flat, K, indices, begin, end, ratio, none, one, scaled, image)
        bend = none
        for k in range(K):
            image[k] = direction[k] + w1 * root[k] * image[k]
            bend += direction[k] * image[k]
        length = square / bend
        before, square = square, none
        for k in range(K):
            u[k] += length * direction[k]
            residual[k] -= length * image[k]
            square += residual[k] * residual[k]
