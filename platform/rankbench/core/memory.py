"""Memory: how much this process may use, checks before work that needs more, and files for what does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rankbench.core.control_groups import control_groups
from rankbench.core.errors import ConfigError, StorageError, first_line, shown
from rankbench.core.plain import whole_number
from rankbench.core.public import check_fields

LEAST = 32 << 20  # bytes; tiles of less memory would be too small to be useful
LATER = 48 << 20  # bytes that compiled loops and BLAS buffers will use once they run
# Texts of PyTorch errors, other than MemoryError, about failed allocations on the host or the device.
_TORCH_ALLOCATION = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
)


def available_memory() -> int:
    """Return the free bytes of the machine or within the limits of this process's control groups, whichever is least."""
    return min([psutil.virtual_memory().available, *_room_in_groups()])


def memory_of_machine() -> int:
    """Return the bytes of the machine, or the least limit of this process's control groups, if that is less."""
    return min([psutil.virtual_memory().total, *(most for _, _, most in _limits())])


def _limits() -> Iterator[tuple[Path, bool, int]]:
    """The control groups of this process with a limit of memory, whether they are of the second version, and the bytes."""
    for folder, is_second in control_groups("memory"):
        with suppress(OSError, ValueError):  # without a limit the text is "max", or the file is missing
            most = (folder / ("memory.max" if is_second else "memory.limit_in_bytes")).read_text(encoding="ascii")
            yield folder, is_second, int(most)


def _room_in_groups() -> Iterator[int]:
    """Bytes that each control group of this process with a limit of memory may still use."""
    for folder, is_second, most in _limits():
        with suppress(OSError, ValueError):
            taken = int((folder / ("memory.current" if is_second else "memory.usage_in_bytes")).read_text(encoding="ascii"))
            stat = (folder / "memory.stat").read_text(encoding="ascii").split()
            # Cached file pages count as used here, but are freed when memory is needed.
            inactive = stat.index("inactive_file" if is_second else "total_inactive_file")
            yield max(most - taken + int(stat[inactive + 1]), 0)


@dataclass(frozen=True)
class Spill:
    """Closed forms whose matrix does not fit into `memory`, the total bytes this process may use, are solved by tiles in a file
    in `folder`. With `resume`, a solve that was killed continues; with `discard`, not from tiles of another problem or code.
    """

    folder: Path
    memory: int
    resume: bool = False
    discard: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        whole_number("Spill.memory", self.memory)

    def fits(self, n_items: int, itemsize: int, interactions: int) -> bool:
        """Whether the matrix and the working memory of its inverse fit."""
        return dense_bytes(n_items, itemsize, interactions) <= self.left()

    def left(self) -> int:
        """Return the bytes that this process may still allocate. Raises StorageError if there are almost none."""
        used = psutil.Process().memory_info().rss + LATER
        if self.memory - used < LEAST:
            raise StorageError(
                f"memory: {self.memory / 1e6:.0f} MB are allowed, Python and the data use {used / 1e6:.0f} MB; "
                f"allow {(used + LEAST) / 1e6:.0f} MB"
            )
        return self.memory - used


def dense_bytes(n_items: int, itemsize: int, interactions: int) -> int:
    """Return the bytes of an item-item matrix and of the larger thing beside it: the transpose of the interactions, which
    it is counted by, and the columns that its inverse works in.
    """
    return itemsize * n_items**2 + max(12 * interactions, itemsize * n_items * 2048)


def bytes_of(text: str, source: str = "memory") -> int:
    """Return the bytes of '4GB', '500 mb' or '1.5 TB', powers of ten. Raises ConfigError, starting with `source`, otherwise."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([kmgt])b?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"{source}: expected a size such as 4GB or 500MB, got {shown(text)}")
    return int(float(match[1]) * 1000 ** ("KMGT".index(match[2].upper()) + 1))


@contextmanager
def memory_errors_are_clear(what: str) -> Iterator[None]:
    """Turn failed allocations of Python, NumPy or PyTorch into a StorageError that starts with `what`."""
    try:
        yield
    except MemoryError as error:
        raise StorageError(f"{what}: not enough memory ({error})") from None
    except RuntimeError as error:
        # Recognised by name and text, because a fit without PyTorch does not import it.
        text = first_line(error)
        if type(error).__name__ != "OutOfMemoryError" and not any(phrase in text for phrase in _TORCH_ALLOCATION):
            raise
        raise StorageError(f"{what}: not enough memory ({text})") from None


def require_memory(n_bytes: int, what: str) -> None:
    """Raise StorageError, with both numbers, unless `n_bytes` of memory are free."""
    free = available_memory()
    if n_bytes > free:
        raise StorageError(f"{what} needs {n_bytes / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
