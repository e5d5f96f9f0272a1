"""Numbered attempts: a process that was frozen and wakes up after another took its place cannot overwrite its results.

Whoever begins some work claims its next attempt. Only the newest attempt may publish:

- In a folder, an attempt is a file that exactly one process can create. A file or folder is written under a scratch name with
  the number of its attempt. The writer looks whether its attempt is the newest, then renames it. A new claim removes the
  scratch of earlier attempts. So whenever an old writer wakes up, either it sees the new attempt or its scratch is gone.
- In a store nothing can be created exclusively. There a name is a number with random letters, which orders claims of the same
  number, too. Each attempt writes under keys of its own, and readers take those of the newest attempt that has any.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rankbench.core.errors import ClusterError, StorageError
from rankbench.core.files import SCRATCH, disk_errors_are_clear, make_folder, scratch_number
from rankbench.core.storage import Storage

_NAME = re.compile(r"(\d{6})(-[0-9a-f]{8})?")


class Superseded(ClusterError):
    """A newer attempt has taken the place of this one, whose results are not written."""


@dataclass(frozen=True)
class FolderAttempt:
    """An attempt that is a file in `folder`; `what` says in words what was attempted."""

    folder: Path
    number: int
    what: str

    @classmethod
    def claim(cls, folder: Path, what: str, targets: Iterable[Path] = ()) -> FolderAttempt:
        """Claim the next attempt. `targets` are the files and folders that it will write: no earlier attempt can then."""
        make_folder(folder)
        number = max(_numbers(folder), default=0)
        with disk_errors_are_clear(folder / "attempt"):
            while True:
                number += 1
                make_folder(folder)  # who gives an attempt back may have removed it
                with suppress(FileExistsError, FileNotFoundError):
                    handle = os.open(folder / f"{number:06d}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                    break
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_about())
            except BaseException:  # as on a full disk: an attempt that was not made must not end the one that runs
                (folder / f"{number:06d}").unlink(missing_ok=True)
                raise
        attempt = cls(folder, number, what)
        for target in targets:
            attempt._disarm(target)
        return attempt

    @property
    def is_newest(self) -> bool:
        return max(_numbers(self.folder), default=0) <= self.number

    def require_newest(self) -> None:
        """Raise Superseded if a newer attempt exists."""
        if not self.is_newest:
            newest = max(_numbers(self.folder))
            raise _superseded(self.what, self.number, newest, (self.folder / f"{newest:06d}").read_bytes)

    def withdraw(self) -> None:
        """Give the number back, before anything was written under it."""
        (self.folder / f"{self.number:06d}").unlink(missing_ok=True)

    def _disarm(self, target: Path) -> None:
        """Remove the scratch of earlier attempts at `target`. Each is renamed first, in one step, so that its writer fails."""
        for scratch in target.parent.glob(f"{SCRATCH}*"):
            number = scratch_number(scratch, target)
            if number is None or number >= self.number:
                continue
            aside = target.parent / f"{SCRATCH}fenced-{secrets.token_hex(4)}"
            with suppress(FileNotFoundError):
                scratch.rename(aside)
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()


@dataclass(frozen=True)
class StoredAttempt:
    """An attempt that is an object below `key`; its `name` sorts after those of earlier attempts."""

    storage: Storage
    key: str
    name: str
    what: str

    @classmethod
    def claim(cls, storage: Storage, key: str, what: str) -> StoredAttempt:
        """Claim the next attempt."""
        number = max((int(name[:6]) for name in attempts(storage.names(key))), default=0) + 1
        name = f"{number:06d}-{secrets.token_hex(4)}"
        storage.write(f"{key}/{name}", _about())
        return cls(storage, key, name, what)

    @property
    def is_newest(self) -> bool:
        return max(attempts(self.storage.names(self.key)), default="") <= self.name

    def require_newest(self) -> None:
        """Raise Superseded if a newer attempt exists."""
        newest = max(attempts(self.storage.names(self.key)), default="")
        if newest > self.name:
            claim = partial(self.storage.read, f"{self.key}/{newest}")
            raise _superseded(self.what, int(self.name[:6]), int(newest[:6]), claim)

    def withdraw(self) -> None:
        """Give the number back, before anything was written under it."""
        self.storage.remove(f"{self.key}/{self.name}")


def attempts(names: Sequence[str]) -> list[str]:
    """Those of `names` that name attempts, the newest last."""
    return sorted(name for name in names if _NAME.fullmatch(name))


def _numbers(folder: Path) -> list[int]:
    return [int(name[:6]) for name in attempts([path.name for path in folder.iterdir()])]


def _about() -> bytes:
    """Who made the claim, for messages and for people who look into the folder."""
    about = {"host": socket.gethostname(), "pid": os.getpid(), "at": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    return (json.dumps(about) + "\n").encode()


def _superseded(what: str, number: int, newest: int, claim: Callable[[], bytes | None]) -> Superseded:
    """The error of attempt `number`. `claim` reads what the newest one says about itself, which may be half-written or gone."""
    who = "another process has taken it over"
    with suppress(OSError, StorageError, ValueError, KeyError, TypeError):
        about = json.loads(claim() or b"")
        who = f"process {about['pid']} on {about['host']} has taken it over at {about['at']}"
    return Superseded(f"{what}: {who} (attempt {newest}; this was attempt {number}); nothing more is written")
