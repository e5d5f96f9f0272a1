"""One thread count for a computation, and the same bits for every count.

BLAS, OpenMP and PyTorch cut their sums, products and loops by the number of their threads, so that the last bits of a result
depend on it, and PyTorch adds up the gradient of an indexed table in whatever order its threads arrive.
So each of these libraries computes in one thread, and this package does the parallel work itself: in blocks whose size does not
depend on the number of threads, each computed by one thread, with sums over blocks taken in the order of the blocks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rankbench.core.errors import require

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
    """Within the block, this package's blocks and compiled loops use `threads` threads, and BLAS, OpenMP and PyTorch one.

    The former numbers of threads are restored after the block.
    """
    import numba
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")  # a method that trains with it has imported it by now; others do without
    before = torch and torch.get_num_threads(), numba.get_num_threads()
    with threadpool_limits(1):
        if torch:
            torch.set_num_threads(1)
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before[0])
            numba.set_num_threads(before[1])
