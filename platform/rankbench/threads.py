"""One thread count for every library that brings its own pool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def available_cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """BLAS, OpenMP, torch and numba use `threads` threads inside the block, and what they had after it."""
    import numba
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads(), numba.get_num_threads()
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            numba.set_num_threads(before[1])
