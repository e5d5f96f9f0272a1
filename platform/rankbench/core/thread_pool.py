"""Pools of threads of this process, which are kept for the next computation. Those of numba and OpenMP do not survive a fork:
in the child, a parallel loop would end the process, or return without having computed anything.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from rankbench.core.compiler import numba

NAME = "rankbench-pool"  # of all threads here
PARTS = 64  # at least, of work that may be uneven, so that threads end together


def in_order(function: Callable[..., Any], blocks: Iterable[Any], workers: int) -> Iterator[Any]:
    """Yield function(block) in the order of `blocks`, computed by `workers` threads.

    At most two results per worker exist at a time, apart from the one that the caller holds. In a thread of a pool, whose
    others may all be waiting, that thread computes them.
    """
    if workers == 1 or threading.current_thread().name.startswith(NAME):
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


def by_threads(function: Callable[[Any], Any], parts: Sequence[Any]) -> Iterator[Any]:
    """`in_order` with as many threads as numba has, and no more than there are parts."""
    return in_order(function, parts, max(1, min(numba.get_num_threads(), len(parts))))


def each(function: Callable[[Any], Any], parts: Sequence[Any]) -> None:
    """Call function(part) for all parts, by the threads of `by_threads`."""
    for _ in by_threads(function, parts):
        pass


def divided(kernel: Callable[..., Any], n: int, *arrays: Any) -> None:
    """Call kernel(*arrays, start, stop) for parts of 0 to n, of which each writes its own part of the arrays."""
    width = -(-n // max(PARTS, 4 * numba.get_num_threads()))
    each(lambda part: kernel(*arrays, part.start, part.stop), slices(0, n, max(1, width)))


def slices(start: int, stop: int, width: int) -> list[slice]:
    """Return consecutive slices of `width` positions, the last perhaps of fewer, that cover `start` to `stop`."""
    return [slice(first, min(first + width, stop)) for first in range(start, stop, width)]


def threads_of(n: int) -> ThreadPoolExecutor:
    """Return a pool of `n` threads, kept because starting threads would slow down steps of milliseconds. Functions must not
    wait for others in the same pool.

    Threads take over from the one that starts them whether subnormal numbers count as zero, so there is a pool for either case:
    what ran before in the process must not change the bits of a fit.
    """
    return _threads(n, bool(np.float32(1e-40) * np.float32(1) == 0))


@cache
def _threads(n: int, flushed: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, thread_name_prefix=NAME)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has the pools without their threads
