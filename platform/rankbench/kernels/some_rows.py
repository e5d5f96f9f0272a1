"""The rows of a gradient that are not 0: those of a batch, where only its rows were scored."""

from __future__ import annotations

import numba
import numpy as np

from rankbench.kernels.parallel import in_parallel


def some_rows(*grads: np.ndarray) -> tuple[np.ndarray, ...]:
    """The indices (m,) of the rows that are not 0 in all of `grads` (n, d), the place (n,) int32 of each row among them, or −1,
    and these rows of each array, (m, d). If they are more than half of all, all rows count, and none is copied.
    """
    n = len(grads[0])
    found = np.zeros(n, np.bool_)
    for grad in grads:
        in_parallel(_find_some, n, grad.size, grad, found)
    nodes = np.flatnonzero(found)
    if 2 * len(nodes) > n:
        return np.arange(n), np.arange(n, dtype=np.int32), *grads
    place = np.full(n, -1, np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    return nodes, place, *(grad[nodes] for grad in grads)


@numba.njit(nogil=True, cache=True)
def _find_some(grad, found, start, stop):
    for row in range(start, stop):
        count = 0
        for c in range(grad.shape[1]):
            count += grad[row, c] != 0
        found[row] = found[row] or count > 0
