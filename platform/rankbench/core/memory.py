"""How much memory this process may take, a refusal before work that would need more, and where what is too large may go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from rankbench.core.errors import ConfigError, StorageError

LEAST = 32 << 20  # bytes without which no tile is worth its name
LATER = 48 << 20  # bytes that compiled loops and the buffers of BLAS take once they run
_CGROUP = Path("/sys/fs/cgroup")
# What PyTorch says, in errors that are no MemoryError, when an allocation fails on the host or on the device.
_TORCH_ALLOCATION = ("DefaultCPUAllocator: can't allocate memory", "CUDA out of memory", "STATUS_ALLOC_FAILED")


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


@dataclass(frozen=True)
class Spill:
    """Closed forms whose matrix does not fit into `memory`, bytes that this process may hold in all, are solved by tiles in a
    file under `folder`. With `resume` a solve that was killed goes on.
    """

    folder: Path
    memory: int
    resume: bool = False

    def fits(self, n_items: int, itemsize: int) -> bool:
        """Whether the matrix and what inverts it in place do."""
        return dense_bytes(n_items, itemsize) <= self.left()

    def left(self) -> int:
        """Bytes beside what this process holds already. Raises StorageError when there is next to nothing."""
        held = psutil.Process().memory_info().rss + LATER
        if self.memory - held < LEAST:
            least = (held + LEAST) / 1e6
            raise StorageError(
                f"memory: {self.memory / 1e6:.0f} MB are given, Python and the data hold {held / 1e6:.0f}; give {least:.0f}"
            )
        return self.memory - held


def dense_bytes(n_items: int, itemsize: int) -> int:
    """An item-item matrix, and the columns beside it that its inverse works in."""
    return itemsize * n_items * (n_items + 2048)


def bytes_of(text: str, where: str = "memory") -> int:
    """'4GB', '500 mb', '1.5 TB' as bytes; powers of ten. Raises ConfigError, which begins with `where`, for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])b?\s*", text, re.IGNORECASE)
    if not found or float(found[1]) <= 0:
        raise ConfigError(f"{where}: expected a size such as 4GB or 500MB, got {text!r}")
    return int(float(found[1]) * 1000 ** ("KMGT".index(found[2].upper()) + 1))


@contextmanager
def memory_errors_are_clear(what: str) -> Iterator[None]:
    """Turn a failed allocation, Python's, NumPy's or PyTorch's, into a StorageError that names `what` was worked on."""
    try:
        yield
    except MemoryError as error:
        raise StorageError(f"{what}: not enough memory ({error})") from None
    except RuntimeError as error:
        # Recognised by name and text, because a fit that needs no PyTorch does not import it.
        text = (str(error).splitlines() or [""])[0]
        if type(error).__name__ != "OutOfMemoryError" and not any(phrase in text for phrase in _TORCH_ALLOCATION):
            raise
        raise StorageError(f"{what}: not enough memory ({text})") from None


def require_memory(n_bytes: int, what: str) -> None:
    """Raise StorageError, with both numbers, unless `n_bytes` can be had."""
    free = available_memory()
    if n_bytes > free:
        raise StorageError(f"{what} needs {n_bytes / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
