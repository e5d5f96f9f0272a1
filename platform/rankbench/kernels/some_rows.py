"""The rows of a gradient that are not 0: those of a batch, where only its rows were scored."""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.kernels.parallel import in_parallel


def some_rows(nodes: np.ndarray, n_nodes: int, *grads: np.ndarray) -> tuple[np.ndarray, ...]:
    """The indices (m,) of the rows that are not 0 in all of `grads` (n, d), the place (n_nodes,) int32 of the node of each,
    `nodes[row]`, among them, or −1, and these rows of each array, (m, d). If they are more than half of all, all rows count,
    and none is copied.
    """
    n = len(grads[0])
    found = np.zeros(n, np.bool_)
    for grad in grads:
        in_parallel(_find_some, n, grad.size, grad, found)
    at = np.flatnonzero(found)
    at, rows = (np.arange(n), grads) if 2 * len(at) > n else (at, tuple(grad[at] for grad in grads))
    place = np.full(n_nodes, -1, np.int32)
    place[nodes[at]] = np.arange(len(at), dtype=np.int32)
    return at, place, *rows


@numba.njit(nogil=True, cache=True)
def _find_some(grad, found, start, stop):
    for row in range(start, stop):
        count = 0
        for c in range(grad.shape[1]):
            count += grad[row, c] != 0
        found[row] = found[row] or count > 0
