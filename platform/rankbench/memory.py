"""How much memory this process may still take, and a refusal before the work that would need more."""

from __future__ import annotations

from pathlib import Path

import psutil

from rankbench.errors import StorageError

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes: what the machine has free, or what the container's limit leaves, whichever is less."""
    free = psutil.virtual_memory().available
    try:
        limit = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        stat = (_CGROUP / "memory.stat").read_text(encoding="ascii").split()
        # Cached file pages count as used there, and are given back when memory is asked for.
        reclaimable = int(stat[stat.index("inactive_file") + 1])
    except (OSError, ValueError):
        return free
    return free if limit == "max" else min(free, int(limit) - used + reclaimable)


def require_memory(n_bytes: int, what: str) -> None:
    """Raise StorageError, with both numbers, unless `n_bytes` can be had."""
    free = available_memory()
    if n_bytes > free:
        raise StorageError(f"{what} needs {n_bytes / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
