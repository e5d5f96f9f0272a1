"""Messages that are sent after a process if it is killed, so that nothing is shown as running for ever."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock

from rankbench.core.files import make_folder, write_json
from rankbench.tracking.spool import AFTER, LOCK, Message, Spool


class LastWords:
    """The messages of one process in a folder of its own in the spool, with a lock. The operating system frees the lock when
    the process ends, however it ends; the next command then puts what is in the folder into the spool (`Spool.inherit`).
    """

    def __init__(self, spool: Spool):
        self._folder = spool.folder / AFTER / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: FileLock | None = None

    def say(self, about: str, message: Message) -> None:
        """Keep a message, which replaces an earlier one about the same. Raises OSError or StorageError if that fails."""
        if self._lock is None:
            hidden = self._folder.with_name(f".{self._folder.name}")
            make_folder(hidden)
            lock = FileLock(hidden / LOCK)
            lock.acquire()
            hidden.rename(self._folder)  # seen only now: a folder without a lock would count as that of an ended process
            self._lock = lock
        write_json(self._path(about), asdict(message))

    def take_back(self, about: str) -> None:
        with suppress(OSError):
            self._path(about).unlink(missing_ok=True)

    def close(self) -> None:
        """Take back all messages."""
        if self._lock:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.release()
            self._lock = None

    def _path(self, about: str) -> Path:
        return self._folder / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"
