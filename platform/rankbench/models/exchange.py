"""How workers that train one model together send each other what they have computed.

Every worker draws the same global batch. The rows of a batch belong to the worker that owns their user, so that the vectors and
moments of users are not sent while a model is trained, unless an encoder propagates them over a graph. What all workers share,
such as items, has the same bits at every worker: its gradients are summed over the workers, and each applies the same step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor


class Exchange:
    """The connection of worker `rank` with the others, `size` in all: here that of a fit in one process, which sends nothing.
    `sent` counts the bytes that it has sent so far.

    All workers call both methods together, with tensors of the same shapes. They raise Lost if a worker does not answer.
    """

    rank, size, sent = 0, 1, 0.0

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the workers."""

    def complete(self, tables: Iterable[Tensor]) -> None:
        """Overwrite the rows of each table (n, ...) by those of their owners: rows r, r + size, ... are of worker r."""


def owned(users: np.ndarray, exchange: Exchange) -> np.ndarray:
    """Whether this worker owns each of `users` (m,) int64, (m,) bool. Neighbours have different owners, since users are often
    sorted by their activity.
    """
    return users % exchange.size == exchange.rank
