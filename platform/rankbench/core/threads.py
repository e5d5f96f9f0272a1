"""One thread count for a computation, and the same bits for every count.

BLAS, OpenMP and PyTorch divide sums, products and loops by their number of threads, so that the last bits of a result depend
on it, and PyTorch sums the gradient of an indexed table in the order in which its threads arrive. Therefore each of these
libraries computes in one thread, and this package parallelises the work itself: in blocks whose size does not depend on the
number of threads, each computed by one thread, with sums over blocks in the order of the blocks.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rankbench.core.control_groups import control_groups
from rankbench.core.errors import require

NUMBA = "NUMBA_NUM_THREADS"
PER_CPU = 4  # most threads per processor: more only wait for one another, and tens of thousands fill the process table


def available_cpus() -> int:
    """Return the number of processors that this process may use: those it may run on, within the quota of its container."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return math.ceil(min([cpus, *_quotas()]))


def own_threads() -> int:
    """Return the number of threads of a computation in this process, if nobody says another one: one per processor, and no more
    than the variable NUMBA_NUM_THREADS allows, which joblib sets in its workers.
    """
    allowed = os.environ.get(NUMBA, "")
    return min(available_cpus(), int(allowed)) if allowed.isdigit() and int(allowed) else available_cpus()


def _quotas() -> Iterator[float]:
    """Seconds of processors that each control group of this process with a quota may use per second."""
    for folder, is_second in control_groups("cpu"):
        names = ("cpu.max",) if is_second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        with suppress(OSError, ValueError):  # without a quota the text is "max" or -1, or the file is missing
            quota, period = map(int, " ".join((folder / name).read_text(encoding="ascii") for name in names).split())
            if quota > 0:
                yield quota / period


def require_threads(threads: int, source: str, what: str = "threads") -> None:
    """Raise ConfigError, starting with `source`, for more than `PER_CPU` threads per processor of this process.

    `what` are the processes or threads, in the plural.
    """
    cpus = available_cpus()
    require(
        threads <= PER_CPU * cpus,
        f"{source}: {threads} {what} are too many for {cpus} processors; give at most {PER_CPU * cpus}",
    )


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Within the block, this package's blocks and compiled loops use `threads` threads, and BLAS, OpenMP and PyTorch one.

    Products by PyTorch have the digits of float32: a process may ask for TF32, which has fewer.

    All of it is restored after the block. Raises ConfigError if the variable NUMBA_NUM_THREADS allows fewer threads.
    """
    from threadpoolctl import threadpool_limits

    from rankbench.core.compiler import numba

    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    fewer = f"NUMBA_NUM_THREADS={most} allows {most} of {threads} threads; unset it, or ask for {most} threads"
    require(threads <= most or NUMBA not in os.environ, fewer)
    torch = sys.modules.get("torch")  # imported by now if the method uses it
    before = torch and torch.get_num_threads(), numba.get_num_threads()
    with threadpool_limits(1), _digits_of_float32(torch):
        if torch:
            torch.set_num_threads(1)
        numba.set_num_threads(min(threads, most))
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before[0])
            numba.set_num_threads(before[1])


@contextmanager
def _digits_of_float32(torch: Any) -> Iterator[None]:
    """Let PyTorch multiply without TF32, by the older of its two settings unless the process has used the newer one."""
    if not torch:
        yield
        return
    try:
        before, last, restore = torch.get_float32_matmul_precision(), "highest", torch.set_float32_matmul_precision
    except RuntimeError:  # the newer one, torch.backends.cuda.matmul.fp32_precision, says something else
        matmul = torch.backends.cuda.matmul
        before, last = matmul.fp32_precision, "ieee"

        def restore(value: str) -> None:
            matmul.fp32_precision = value

    restore(last)
    try:
        yield
    finally:
        restore(before)
