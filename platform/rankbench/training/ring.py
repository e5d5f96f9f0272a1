"""The exchange of workers by torch.distributed: gloo between processors, NCCL between GPUs.

A sum of n bytes over W workers goes around the ring of workers twice, so that each of them sends 2 (W − 1)/W · n bytes
(Patarasuk and Yuan, 2009). Rows that are gathered from their owners go around once, (W − 1)/W · n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from rankbench.fitting.crew import Board, Place
from rankbench.fitting.flow import Lost
from rankbench.models.exchange import Exchange

PATIENCE = 300.0  # seconds to wait for another worker, which may still be compiling


class Ring(Exchange):
    """The workers find each other by their board, so that no server listens for them, and gloo uses their addresses only."""

    def __init__(self, place: Place, device: torch.device | None = None):
        self.rank, self.size, self.sent = place.rank, place.size, 0.0
        try:
            self.group = _group(place, _Notes(place.board), device)
        except RuntimeError as error:
            raise Lost(f"worker {self.rank} of {self.size} has no connection with another one: {error}") from None

    def sum(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            whole = tensor if tensor.is_contiguous() else tensor.contiguous()
            self._wait(lambda whole=whole: self.group.allreduce([whole]))
            if whole is not tensor:
                tensor.copy_(whole)
            self.sent += wire_bytes(tensor, self.size)

    def complete(self, tables: Iterable[Tensor]) -> None:
        for table in tables:
            rows = table.detach()
            # Owners may have one row more or less, and all send as many.
            parts = rows.new_zeros(self.size, -(-len(rows) // self.size), *rows.shape[1:])
            mine = rows[self.rank :: self.size]
            own = rows.new_zeros(parts.shape[1:])
            own[: len(mine)] = mine
            self._wait(lambda parts=parts, own=own: self.group.allgather([list(parts)], [own]))
            for rank, part in enumerate(parts):
                if rank != self.rank:
                    theirs = rows[rank :: self.size]
                    theirs.copy_(part[: len(theirs)])
            self.sent += wire_bytes(parts, self.size) / 2

    def _wait(self, begin: Callable[[], Any]) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise Lost(f"worker {self.rank} of {self.size} has lost another one: {error}") from None


def _group(place: Place, store: distributed.Store, device: torch.device | None) -> Any:
    limit = timedelta(seconds=PATIENCE)
    if device is not None and device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
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
