"""The memory that a reader takes at its peak."""

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def peak() -> Iterator[list[int]]:
    """A list that has, after the block, the most bytes that Python and Arrow held in it: the sum of the two peaks."""
    taken, arrow, done = [], 0, threading.Event()
    before = pa.total_allocated_bytes()

    def watch() -> None:
        nonlocal arrow
        while not done.wait(0.001):
            arrow = max(arrow, pa.total_allocated_bytes() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    tracemalloc.start()
    try:
        yield taken
    finally:
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        done.set()
        watching.join()
        taken.append(python + arrow)
