"""Row solves by a few steps of conjugate gradients, starting at the last iteration's vectors.

In the eigenbasis of the shared Gram matrix, the system is diagonal apart from the row's own interactions, D + w1² Σ y yᵀ, and
the diagonal D is the preconditioner. The first residual and each step but the last take 4 m K operations for m interactions,
and no product with a K x K matrix. The last step takes half as many: the length of a step needs the products y·p alone, and
what it leaves of the residual is not asked for.
"""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.solvers.als.exact import exact_cycles
from rankbench.solvers.als.simd import LANES, combine, products


def steps_are_cheaper(m: np.ndarray, K: int, steps: int) -> np.ndarray:
    """Whether `steps` steps take, for rows of m interactions, fewer cycles than an exact solve of sixteen rows at a time.

    The formula was fitted to one machine. Three steps are cheaper for nearly all rows, thirty for rows of many interactions.
    """
    return m * K * (0.3 + 0.22 * steps) + (steps + 1) * (K + 100) < exact_cycles(m, K)


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=True)
def solve_gradients(indptr, indices, w0, w1, t0, t1, reg, Y, ratio, spectrum, h, floor, steps, x):
    """Overwrite x (n_rows, K), the rotated starting point, with the result. The other arguments are those of `solve_exact`."""
    n_rows = len(indptr) - 1
    K, top, none = Y.shape[1], spectrum.max(), Y.dtype.type(0)
    flat, zeros = Y.reshape(-1), (Y.shape[0] - 1) * Y.shape[1]
    longest = np.diff(indptr).max()
    longest += -longest % LANES
    offsets, tau, dots = np.empty(longest, np.int64), np.empty(longest, Y.dtype), np.empty(longest, Y.dtype)
    diagonal, inverse = np.empty(K, Y.dtype), np.empty(K, Y.dtype)
    residual, direction, image = np.empty(K, Y.dtype), np.empty(K, Y.dtype), np.empty(K, Y.dtype)
    for row in range(n_rows):
        begin, m, weight = indptr[row], indptr[row + 1] - indptr[row], w1[row] * w1[row]
        padded = m + -m % LANES
        for i in range(m):
            offsets[i] = numba.int64(indices[begin + i]) * K
            tau[i] = t1[row] * ratio[indices[begin + i]]
        for i in range(m, padded):
            offsets[i] = zeros
            tau[i] = none
        least = floor * (w0[row] * top + reg[row])
        u = x[row]
        for k in range(K):
            d = w0[row] * spectrum[k] + reg[row]
            diagonal[k] = d
            inverse[k] = 1 / d if d > least else none
            direction[k] = u[k] if d > least else none
            u[k] = direction[k]
        # The residual b − A u, in two passes over the interactions: their scores, and the sum of what is left of the targets.
        for i in range(0, padded, LANES):
            products(flat, K, offsets, i, 0, direction, 0, dots, i)
        for i in range(padded):
            dots[i] = tau[i] - w1[row] * dots[i]
        combine(flat, K, offsets, 0, 0, m, dots, 0, image, 0)
        square = none
        for k in range(K):
            residual[k] = t0[row] * h[k] - diagonal[k] * u[k] + w1[row] * image[k]
            direction[k] = inverse[k] * residual[k]
            square += direction[k] * residual[k]
        for step in range(steps):
            if square <= 0:
                break
            for i in range(0, padded, LANES):
                products(flat, K, offsets, i, 0, direction, 0, dots, i)
            bend, scores = none, none
            for i in range(padded):
                scores += dots[i] * dots[i]
            for k in range(K):
                bend += diagonal[k] * direction[k] * direction[k]
            bend += weight * scores
            if bend <= 0:  # a residual so small that its square is 0
                break
            length = square / bend
            if step == steps - 1:  # the residual is not needed any more
                for k in range(K):
                    u[k] += length * direction[k]
                break
            combine(flat, K, offsets, 0, 0, m, dots, 0, image, 0)
            before, square = square, none
            for k in range(K):
                u[k] += length * direction[k]
                residual[k] -= length * (diagonal[k] * direction[k] + weight * image[k])
                square += inverse[k] * residual[k] * residual[k]
            turn = square / before
            for k in range(K):
                direction[k] = inverse[k] * residual[k] + turn * direction[k]
