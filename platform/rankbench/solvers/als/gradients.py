"""Row solves by a few steps of conjugate gradients, starting at the last iteration's vectors; exact where that is cheaper.

In the eigenbasis of the shared Gram matrix, the system is diagonal apart from the row's own interactions, and the diagonal is
the preconditioner: with u = D^½ x the steps solve (I + ỸᵀỸ) u = D^-½ b. A step takes 4 m K operations for m interactions, and
no product with a K x K matrix.
"""

from __future__ import annotations

import numba
import numpy as np

from rankbench.solvers.als.exact import solve_exact
from rankbench.solvers.als.simd import LANES, add_images

NEAR = 1 << 17  # the most numbers in a row's vectors that stay in the cache of one core from step to step


@numba.njit(nogil=True, cache=True)
def solve_gradients(indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, steps, x):
    """Overwrite x (n_rows, K), the rotated starting point, with the result. The other arguments are those of `solve_exact`.

    Rows must be sorted, longest first. Groups of LANES rows, counted from the first, all take steps or are all solved exactly.
    """
    n_rows, K = len(indptr) - 1, Y.shape[1]
    start = 0
    while start < n_rows:
        by_steps = _all_cheaper(indptr, start, n_rows, K, steps)
        stop = start
        while stop < n_rows and _all_cheaper(indptr, stop, n_rows, K, steps) == by_steps:
            stop = min(stop + LANES, n_rows)
        if by_steps:
            _solve_rows(start, stop, indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, steps, x)
        else:
            solve_exact(
                indptr[start : stop + 1], indices, w0[start:stop], w1[start:stop], t0[start:stop], t1[start:stop],
                reg[start:stop], Y, ratio, spectrum, h, floor, x[start:stop],
            )  # fmt: skip
        start = stop


@numba.njit(nogil=True, cache=True)
def _all_cheaper(indptr, first, n_rows, K, steps):
    last = min(first + LANES, n_rows) - 1
    longest, shortest = indptr[first + 1] - indptr[first], indptr[last + 1] - indptr[last]
    return steps_are_cheaper(longest, K, steps) and steps_are_cheaper(shortest, K, steps)


@numba.njit(cache=True)
def steps_are_cheaper(m, K, steps):
    """Whether `steps` steps for a row of m interactions take fewer cycles than an exact solve of sixteen rows at a time.

    The formula was fitted to one machine. Three steps are never cheaper at K = 64; at K = 128 they are cheaper for rows whose
    vectors stay in the cache of one core, and at K = 256 for all but short rows.
    """
    small = min(m, K)
    exact = m * K * (1 + small / 50) + small**3 / 96
    a_step, before = (0.35 * K + 10, 0.9 * K) if m * K <= NEAR else (K + 20.0, 0.0)
    return m * ((steps + 1) * a_step + before) + 30 * steps * K < exact


@numba.njit(nogil=True, cache=True)
def _solve_rows(start, stop, indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, steps, x):
    K = Y.shape[1]
    root = np.empty(K, Y.dtype)
    u, residual, direction, scaled, image = np.empty((5, K), Y.dtype)
    far = Y.reshape(-1)
    room = NEAR // K
    near, near_ratio, in_order = np.empty((room, K), Y.dtype), np.empty(room, Y.dtype), np.arange(room).astype(np.int32)
    for row in range(start, stop):
        least = floor * (w0[row] * spectrum.max() + reg[row])
        for k in range(K):
            d = w0[row] * spectrum[k] + reg[row]
            root[k] = 1 / np.sqrt(d) if d > least else d * 0
            u[k] = x[row, k] / root[k] if root[k] > 0 else d * 0
        begin, end = indptr[row], indptr[row + 1]
        if end - begin <= room:
            for s in range(begin, end):
                near[s - begin] = Y[indices[s]]
                near_ratio[s - begin] = ratio[indices[s]]
            _steps(
                near.reshape(-1), in_order, 0, end - begin, near_ratio, w1[row], t0[row], t1[row], h, root, steps,
                u, residual, direction, scaled, image,
            )  # fmt: skip
        else:
            _steps(
                far, indices, begin, end, ratio, w1[row], t0[row], t1[row], h, root, steps,
                u, residual, direction, scaled, image,
            )  # fmt: skip
        for k in range(K):
            x[row, k] = root[k] * u[k]


@numba.njit(nogil=True, cache=True, fastmath=True)
def _steps(flat, indices, begin, end, ratio, w1, t0, t1, h, root, steps, u, residual, direction, scaled, image):
    """Take `steps` steps for one row, which overwrite u = D^½ x; the last four arrays are workspace."""
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
