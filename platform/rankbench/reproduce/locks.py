"""A lock per task, so that of two commands that share a folder of results only one is at a task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from filelock import FileLock, Timeout

from rankbench.core.environment import Environment
from rankbench.core.files import make_folder
from rankbench.reproduce.adopt import records_folder
from rankbench.reproduce.schedule import Task

LOCKS = "locks"


@contextmanager
def locked(tasks: Sequence[Task], environment: Environment) -> Iterator[list[Task]]:
    """Hold the locks of the tasks that no other command is at, and yield these tasks. The operating system frees the locks of a
    process that ends, however it ends.
    """
    folder = records_folder(environment).parent / LOCKS
    make_folder(folder)
    with ExitStack() as held:
        free = []
        for task in tasks:
            try:
                held.enter_context(FileLock(folder / f"{_digest(task)}.lock", timeout=0))
            except Timeout:
                continue
            free.append(task)
        yield free


def _digest(task: Task) -> str:
    return hashlib.sha256(repr(task.key).encode()).hexdigest()[:16]
