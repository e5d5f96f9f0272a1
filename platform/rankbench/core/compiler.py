"""numba, whose compiled loops are kept for the content of all files that have some.

Numba compiles a loop again if its own file has changed. It does not see that a function which the loop calls, or a constant
that it reads, has changed in another file: the old machine code would go on, beside a record that names the new code.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numba
from platformdirs import user_cache_dir

from rankbench.core.plugins import sources_digest

__all__ = ["numba"]
OLD = 30 * 24 * 3600.0  # seconds after which compiled loops of other versions of the code are removed


def keep_in(root: Path, digest: str) -> None:
    """Let numba keep loops in a folder of this digest below `root`, or below the user's folder if that cannot be written."""
    folder = root / f"loops-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)  # it is in use
    except OSError:
        root = Path(user_cache_dir("rankbench"))
        folder = root / folder.name
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
    for other in root.glob("loops-*"):
        with suppress(OSError):  # another process removes it
            if other.stat().st_mtime < time.time() - OLD:
                shutil.rmtree(other, ignore_errors=True)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]


_package = Path(__file__).resolve().parents[1]
_root = numba.config.CACHE_DIR  # type: ignore[attr-defined]
keep_in(Path(_root) if _root else _package / "__pycache__", sources_digest(_package, mention=b"numba")[:16])


@contextmanager
def apart(digest: str) -> Iterator[None]:
    """Let numba keep the loops that are decorated within the block below a folder of their own: numba sees the constants of a
    plugin no more than other files.
    """
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = f"{before}/{digest}"  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
