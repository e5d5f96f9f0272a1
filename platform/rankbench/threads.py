"""One thread count for every library that brings its own pool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rankbench.errors import require

PER_CPU = 4  # threads: more only wait for one another, and some tens of thousands take every place in the process table


def available_cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_threads(threads: int, where: str) -> None:
    """Raise ConfigError, which begins with `where`, for more threads than `PER_CPU` per processor of this process."""
    cpus = available_cpus()
    require(
        threads <= PER_CPU * cpus,
        f"{where}: {threads} threads are too many for {cpus} processors; give at most {PER_CPU * cpus}",
    )


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
