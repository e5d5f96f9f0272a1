"""Map a function over blocks of work, in this process or on a cluster, with the same interface for solvers.

`ThreadMap` uses this process, `cluster.ray_map.RayMap` a Ray cluster. Both return the result of a block with its index, on a
cluster in the order in which blocks finish: results are placed by index. A `flow.Flow` is for work on a
cluster whose parts need each other's results: its arrays stay where they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rankbench.core.thread_pool import in_order
from rankbench.fitting.flow import Flow


@runtime_checkable
class BlockMap(Protocol):
    """A map over blocks. `workers`: number of blocks in work at a time, so that callers can create enough blocks."""

    @property
    def workers(self) -> int: ...

    def put(self, value: Any) -> Any:
        """Send `value` once and return a handle, to be used in later `map` calls as a block or a shared argument."""

    def map(self, function: Callable[..., Any], blocks: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield (index, function(block, *shared)) as blocks finish, each index once.

        `blocks` and `shared` are handles or plain values. Functions must be pure, because a block may be computed twice. Errors
        of the function are raised here.
        """

    def flow(self) -> Flow | None:
        """Return a Flow, or None if all work is done in this process."""


@dataclass(frozen=True)
class ThreadMap:
    """Work in this process, one thread per block. Functions should spend their time in code that releases the GIL."""

    workers: int = 1

    def put(self, value: Any) -> Any:
        return value

    def flow(self) -> None:
        return None

    def map(self, function: Callable[..., Any], blocks: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        workers = 1 if len(blocks) == 1 else self.workers
        yield from enumerate(in_order(lambda block: function(block, *shared), blocks, workers))
