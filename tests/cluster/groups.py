"""Groups of control with a limit of memory, in which processes of a test run: what exceeds it is killed by the kernel."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = Path("/sys/fs/cgroup/memory")  # version 1 of control groups, which must be writable


def unavailable() -> str | None:
    """Why groups cannot be made here, or None."""
    if not (MEMORY / "memory.limit_in_bytes").exists() or not os.access(MEMORY, os.W_OK):
        return f"control groups of version 1 with a limit of memory cannot be made in {MEMORY}"
    return None


@contextmanager
def made(group: Path) -> Iterator[Path]:
    """A group for the length of the block, after which its last process may still be ending."""
    group.mkdir()
    try:
        yield group
    finally:
        until = time.monotonic() + 60
        while group.exists() and time.monotonic() < until:
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.1)


@contextmanager
def memory_group(n_bytes: int) -> Iterator[list[str]]:
    """Words to put before a command, which then has at most `n_bytes` of memory with all that it starts."""
    with made(MEMORY / f"rb-{os.getpid()}-{secrets.token_hex(2)}") as group:
        (group / "memory.limit_in_bytes").write_text(str(n_bytes), encoding="ascii")
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
