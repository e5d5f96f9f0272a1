"""The memory that a reader takes at its peak."""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

POOLS: list[pa.MemoryPool] = []  # through which buffers that outlive a block are freed


@contextmanager
def peak() -> Iterator[list[int]]:
    """A list that has, after the block, the most bytes that Python and Arrow held in it: the sum of the two peaks."""
    taken: list[int] = []
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield taken
    finally:
        python = tracemalloc.get_traced_memory()[1]
        time.sleep(0.2)  # threads of Arrow give back what they read: CPython 3.11 may crash if tracemalloc stops meanwhile
        tracemalloc.stop()
        pa.set_memory_pool(usual)
        taken.append(python + pool.max_memory())
