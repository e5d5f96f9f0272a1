"""Map a function over blocks of work, in this process or on a cluster, with the same interface for solvers.

`ThreadMap` uses this process, `cluster.ray_map.RayMap` a Ray cluster. Both return the result of a block with its index, in the
order in which blocks finish, so that results placed by index do not depend on the order. A `Flow` is for work on a cluster
whose parts need each other's results: its arrays stay where they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Protocol

import numpy as np


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


class Lost(Exception):
    """Arrays of a flow were lost with the process or host that held them."""


class Flow(Protocol):
    """Named arrays that are stored where the work is done, and functions that make and change them.

    A call sees the arrays as earlier calls leave them. Work is done within `done` and `wait`, and the errors of functions are
    raised there. Both may raise Lost: then the state of all arrays is unknown, and the caller starts again with `clear` from
    what it has saved. `nodes`: number of nodes; `workers`: number of tasks that they run at a time; `threads`: of a task;
    `room`: total bytes for arrays.
    """

    @property
    def nodes(self) -> int: ...

    @property
    def workers(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def room(self) -> int: ...

    def put(self, value: Any) -> Any:
        """Send `value` and return a handle for the arguments of functions, which stays valid after `clear`."""

    def make(self, names: Sequence[Hashable], function: Callable[..., Any], *arguments: Any, node: int = 0) -> None:
        """Store the list of arrays that function(*arguments) returns under `names`, on a node, which makes their changes."""

    def change(self, name: Hashable, function: Callable[..., Any], reads: Sequence[Hashable]) -> None:
        """Change the array called `name` in place by function(array, *others), where the others are the arrays of `reads`."""

    def use(self, name: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call function(array, *arguments) for its side effect. Returns a ticket for `done` and `wait`."""

    def done(self, tickets: Iterable[Any]) -> bool:
        """Hand out work without waiting. Returns whether all tickets are done."""

    def wait(self, tickets: Iterable[Any]) -> None:
        """Wait until all tickets are done."""

    def forget(self, names: Iterable[Hashable]) -> None:
        """Free the arrays once all earlier calls are done."""

    def clear(self) -> None:
        """Forget all work and all arrays."""


@dataclass(frozen=True)
class ThreadMap:
    """Work in this process, one thread per block. Functions should spend their time in code that releases the GIL."""

    workers: int = 1

    def put(self, value: Any) -> Any:
        return value

    def flow(self) -> None:
        return None

    def map(self, function: Callable[..., Any], blocks: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        if self.workers == 1 or len(blocks) == 1:
            for index, block in enumerate(blocks):
                yield index, function(block, *shared)
            return
        pool, todo = threads_of(self.workers), iter(enumerate(blocks))
        running: dict[Future[Any], int] = {}
        try:
            while True:
                for index, block in islice(todo, 2 * self.workers - len(running)):
                    running[pool.submit(function, block, *shared)] = index
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()
            wait(running)


def in_order(function: Callable[..., Any], blocks: Iterable[Any], workers: int) -> Iterator[Any]:
    """Yield function(block) in the order of `blocks`, computed by `workers` threads.

    At most two results per worker exist at a time, apart from the one that the caller holds.
    """
    if workers == 1:
        yield from map(function, blocks)
        return
    pool, todo = threads_of(workers), iter(blocks)
    running: deque[Future[Any]] = deque()
    try:
        while True:
            running.extend(pool.submit(function, block) for block in islice(todo, 2 * workers - len(running)))
            if not running:
                return
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
        wait(running)


def threads_of(n: int) -> ThreadPoolExecutor:
    """Return a pool of `n` threads, kept because starting threads would slow down steps of milliseconds. Functions must not
    wait for others in the same pool.

    Threads take over from the one that starts them whether subnormal numbers count as zero, so there is a pool for either case:
    what ran before in the process must not change the bits of a fit.
    """
    return _threads(n, bool(np.float32(1e-40) * np.float32(1) == 0))


@cache
def _threads(n: int, flushed: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, thread_name_prefix="rankbench")
