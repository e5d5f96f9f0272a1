"""What workers that train one model together send each other: sums of gradients, and the rows of users that each one owns.

Every worker draws the same global batch. The rows of a batch belong to the worker that owns their user, so that the vectors and
moments of users are never sent while a model is trained. What all workers share, such as the items, has the same bits at every
worker: its gradients are summed over the workers, and each applies the same step.

A sum of n bytes over W workers goes around the ring of workers twice, so that each of them sends 2 (W − 1)/W · n bytes
(Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, distributed

from rankbench.fitting.crew import Board, Place
from rankbench.fitting.executors import Lost

PATIENCE = 300.0  # seconds to wait for another worker, which may still be compiling


class Exchange(Protocol):
    """The connection of worker `rank` with the others, `size` in all. `sent` counts the bytes that it has sent so far."""

    rank: int
    size: int
    sent: float

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the workers, who all call this with tensors of the same shapes.

        Raises Lost if a worker does not answer.
        """


class Alone:
    """The exchange of a fit in one process, which sends nothing."""

    rank, size, sent = 0, 1, 0.0

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Leave the tensors as they are."""


class Ring:
    """The exchange by torch.distributed: gloo between processors, NCCL between GPUs.

    The workers find each other by their board, so that no server listens for them, and gloo uses their addresses only.
    """

    def __init__(self, place: Place, device: torch.device | None = None):
        self.rank, self.size, self.sent = place.rank, place.size, 0.0
        try:
            self.group = _group(place, _Notes(place.board), device)
        except RuntimeError as error:
            raise Lost(f"worker {self.rank} of {self.size} has no connection with another one: {error}") from None

    def sum(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            whole = tensor if tensor.is_contiguous() else tensor.contiguous()
            try:
                self.group.allreduce([whole]).wait()
            except RuntimeError as error:
                raise Lost(f"worker {self.rank} of {self.size} has lost another one: {error}") from None
            if whole is not tensor:
                tensor.copy_(whole)
            self.sent += wire_bytes(tensor, self.size)


def _group(place: Place, store: distributed.Store, device: torch.device | None) -> Any:
    limit = timedelta(seconds=PATIENCE)
    if device is not None and device.type == "cuda":
        torch.cuda.set_device(device)
        nccl: Any = distributed.ProcessGroupNCCL
        options = nccl.Options()
        options._timeout = limit
        return nccl(store, place.rank, place.size, options)
    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices, options._timeout = [gloo.create_device(hostname=place.address)], limit
    return gloo(store, place.rank, place.size, options)


class _Notes(distributed.Store):
    """A board as PyTorch reads it."""

    def __init__(self, board: Board):
        super().__init__()
        self.board = board

    def set(self, key: str, value: bytes | str) -> None:
        self.board.set(key, value if isinstance(value, bytes) else value.encode())

    def get(self, key: str) -> bytes:
        return self.board.get(key)

    def add(self, key: str, amount: int) -> int:
        return self.board.add(key, amount)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.board.get(key)


def wire_bytes(tensor: Tensor, size: int) -> float:
    """The bytes that each of `size` workers sends for the sum of a tensor."""
    return 2 * (size - 1) / size * tensor.numel() * tensor.element_size()


def owned(users: np.ndarray, exchange: Exchange) -> np.ndarray:
    """Whether this worker owns each of `users` (m,) int64, (m,) bool. Neighbours have different owners, since users are often
    sorted by their activity.
    """
    return users % exchange.size == exchange.rank


def bring_together(tables: Iterable[Tensor], exchange: Exchange) -> None:
    """Overwrite the rows of users in each table (n_users, ...) by those of their owners."""
    if exchange.size == 1:
        return
    for table in tables:
        own = torch.from_numpy(owned(np.arange(len(table)), exchange)).to(table.device)
        rows = table.detach()
        together = torch.where(own.view(-1, *[1] * (table.ndim - 1)), rows, torch.zeros_like(rows))
        exchange.sum([together])
        rows[~own] = together[~own]
