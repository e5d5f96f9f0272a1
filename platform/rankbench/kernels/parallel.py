"""Compiled loops over many rows, divided among the threads of a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import threads_of

ROWS = 2048  # rows of a block that stays in the cache
_SMALL = 1 << 16  # amount of work below which starting a thread costs more than it saves
_BLOCK = 1 << 20  # numbers that a block reads at least, so that handing it to a thread is cheap beside them
_BLOCKS = 32  # largest number of blocks: a thread that is free takes over those of a delayed one


def in_parallel(kernel: Callable, n: int, work: int, *arrays) -> None:
    """Call kernel(*arrays, start, stop) over 0 .. n, divided into one part per thread."""
    n_threads = numba.get_num_threads() if work >= _SMALL else 1
    cuts = np.linspace(0, n, n_threads + 1).astype(np.int64)
    parts = list(pairwise(cuts))
    tasks = [threads_of(n_threads - 1).submit(kernel, *arrays, *part) for part in parts[1:]]
    kernel(*arrays, *parts[0])
    for task in tasks:
        task.result()


def in_blocks(function: Callable[[int, int], Any], n: int, cut: int = 0) -> list[Any]:
    """Call function(begin, end) for blocks of at most ROWS rows of 0 .. n, on the threads of the fit.

    Returns the results in order. No block has rows before `cut` and after it.
    """
    blocks = list(pairwise([*range(0, cut, ROWS), *range(cut, n, ROWS), n]))
    return over(blocks, function)


def summed(parts: Sequence[Sequence[np.ndarray]], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The sums over blocks of the arrays that each block has, in their order; zeros as `like` if there is no block."""
    return [np.sum(part, axis=0) for part in zip(*parts, strict=True)] or [np.zeros_like(each) for each in like]


def even_blocks(work: np.ndarray, cut: int = 0) -> list[tuple[int, int]]:
    """Ranges of rows of about equal work for the threads of the fit. `work` (n + 1,) are the numbers that the rows before each
    one read. No block has rows before `cut` and after it. The blocks depend on the number of threads: they are for rows that
    are computed independently, not for sums over blocks.
    """
    total = int(work[-1])
    n = 1 if numba.get_num_threads() == 1 else min(_BLOCKS, -(-total // _BLOCK))
    cuts = np.searchsorted(work, np.linspace(0, total, n + 1)).tolist()
    return [(begin, end) for begin, end in pairwise(sorted([0, *cuts, cut, len(work) - 1])) if begin < end]


def over(blocks: Sequence[tuple[int, ...]], kernel: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call kernel(*block, *arguments) for every block, on the threads of the fit, and return the results in order."""
    if len(blocks) == 1 or numba.get_num_threads() == 1:
        return [kernel(*block, *arguments) for block in blocks]
    return list(threads_of(numba.get_num_threads()).map(lambda block: kernel(*block, *arguments), blocks))
