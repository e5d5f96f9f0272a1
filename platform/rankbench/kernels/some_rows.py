"""The rows of a gradient that are not 0: those of a batch, where only its rows were scored."""

from __future__ import annotations

import numba
import numpy as np

from rankbench.kernels.parallel import in_parallel


def some_rows(grad: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The indices (m,) of the rows of `grad` (n, d) that are not 0, the place (n,) int32 of each row among them, or −1, and the
    rows (m, d). If these are more than half of all, all rows count, and none is copied.
    """
    found = np.empty(len(grad), np.bool_)
    in_parallel(_are_some, len(grad), grad.size, grad, found)
    nodes = np.flatnonzero(found)
    if 2 * len(nodes) > len(grad):
        return np.arange(len(grad)), np.arange(len(grad), dtype=np.int32), grad
    place = np.full(len(grad), -1, np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    return nodes, place, grad[nodes]


@numba.njit(nogil=True, cache=True)
def _are_some(grad, found, start, stop):
    for row in range(start, stop):
        count = 0
        for c in range(grad.shape[1]):
            count += grad[row, c] != 0
        found[row] = count > 0
