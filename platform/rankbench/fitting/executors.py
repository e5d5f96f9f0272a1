"""A function over blocks of work, here or on a cluster: one signature, so that who solves need not know where.

`ThreadMap` is this process; `cluster.ray_map.RayMap` is a Ray cluster. Both hand a block's answer back with its index, in the
order of arrival: place answers by index, and the order changes nothing. A `Flow` is for work on a cluster whose pieces need
each other's results: arrays that stay where they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Protocol


class BlockMap(Protocol):
    """`workers`: how many blocks are worked on at a time, so that a caller can cut the work into enough of them."""

    @property
    def workers(self) -> int: ...

    def put(self, value: Any) -> Any:
        """A handle of `value`, sent once and good for every later `map` as a block or as a shared argument."""

    def map(self, function: Callable[..., Any], blocks: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield (index, function(block, *shared)) as blocks finish, each index once.

        `blocks` and `shared` are handles or plain values; functions are pure, so that a block may be worked on twice. What
        the function raises is raised here.
        """

    def flow(self) -> Flow | None:
        """None where all work is done in this process."""


class Lost(Exception):
    """Arrays of a flow are gone with the process or the host that held them."""


class Flow(Protocol):
    """Arrays by name that lie where the work is done, and functions that make and change them.

    A call says what to do and returns at once, or when enough is under way; it sees the arrays as the calls before it leave
    them. What a function raises is raised by a later call. Each may raise Lost: then nothing is known of any array, and the
    caller begins again with `clear` from what it has saved. `room`: bytes for arrays, in all.
    """

    @property
    def workers(self) -> int: ...

    @property
    def room(self) -> int: ...

    def put(self, value: Any) -> Any:
        """A handle of `value`, for the arguments of functions; good beyond `clear`."""

    def make(self, names: Sequence[Hashable], function: Callable[..., Any], *arguments: Any) -> None:
        """function(*arguments) returns a list with an array for each name."""

    def change(self, name: Hashable, function: Callable[..., Any], reads: Sequence[Hashable]) -> None:
        """function(array, *others) works on the array of `name` in place; the others are the arrays of `reads`."""

    def use(self, name: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(array, *arguments) is done for its effect; a ticket for `wait`."""

    def wait(self, tickets: Iterable[Any]) -> None:
        """Until all of them are done."""

    def forget(self, names: Iterable[Hashable]) -> None:
        """Their memory is free once what was called before is done."""

    def clear(self) -> None:
        """Give up what is under way, and forget all arrays."""


@dataclass(frozen=True)
class ThreadMap:
    """This process: a thread a block. The function should spend its time in code that holds no lock."""

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
    """Yield function(block) in the order of `blocks`, computed by `workers` threads, whatever the order in which they finish.

    At most two results for each worker exist at a time, apart from the one that the caller holds.
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


@cache
def threads_of(n: int) -> ThreadPoolExecutor:
    """`n` threads that are kept: a step of milliseconds has no time to start its own. Not for functions that wait for others
    of the same pool.
    """
    return ThreadPoolExecutor(n, thread_name_prefix="rankbench")
