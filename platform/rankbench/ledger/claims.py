"""Claims on pieces of work, so that of several commands on one store only one is at each of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from rankbench.core.files import disk_errors_are_clear, make_folder


class Claims:
    """The claims of this process, as locks on files in a folder. The operating system ends those of a process that ends,
    however it ends; leaving the context ends all of them.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._held: dict[str, FileLock] = {}

    def take(self, *pieces: str) -> bool:
        """Claim all of these pieces of work. Returns whether they are ours now; if another process has claimed one of them,
        none is.
        """
        make_folder(self.folder)
        taken: list[str] = []
        for piece in pieces:
            lock = FileLock(self.folder / f"{hashlib.sha256(piece.encode()).hexdigest()[:16]}.lock", timeout=0)
            try:
                with disk_errors_are_clear(self.folder):
                    lock.acquire()
            except Timeout:
                self.release(*taken)
                return False
            self._held[piece] = lock
            taken.append(piece)
        return True

    def release(self, *pieces: str) -> None:
        for piece in pieces:
            self._held.pop(piece).release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release(*self._held)
