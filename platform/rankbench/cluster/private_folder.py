"""A folder for the files of a local Ray cluster that only this user can enter, removed even if its process is killed.

Ray makes its own folders writable for every user of the host. They are therefore inside a folder of mode 0700, which also
contains the cluster's token. A lock that the kernel releases when the owner ends shows the next process which folders are
abandoned. Run as a program, this file removes the folder in which it works.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PARENT = Path("/tmp")  # not TMPDIR: the names of Ray's sockets have at most 107 bytes, of which Ray itself uses more than 70
FOLDER = "RANKBENCH_RAY_FOLDER"  # environment variable with the path of the folder, set for the processes that work in it
_PREFIX, _LOCK = "rb-", "owner.lock"
_PATIENCE, _PAUSE = 10.0, 0.1  # seconds: for a removal that others still disturb, and between two tries of it


@contextmanager
def private_folder(parent: Path = PARENT) -> Iterator[Path]:
    """Yield a new folder of mode 0700 and remove it afterwards. Abandoned folders of this user are removed first."""
    remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    # The lock is taken before the file gets its name, so that no other process finds it free.
    lock = os.open(folder / f".{_LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f".{_LOCK}").rename(folder / _LOCK)
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def remove_abandoned(parent: Path = PARENT) -> None:
    """Remove the folders of this user whose owner has ended, and end the Ray processes that still work in them."""
    for folder in parent.glob(f"{_PREFIX}*"):
        _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            return
        # A folder without the lock file is unrelated, or its owner is about to take the lock.
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_processes(folder)
            _remove(folder)
        finally:
            os.close(lock)


def _remove_own() -> None:
    """Remove the folder in which this process works, once its owner has ended.

    Other abandoned folders stay: whoever removes this one ends this process, which would leave another one half removed.
    """
    folder, until = Path(os.environ[FOLDER]), time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        _remove_if_abandoned(folder)  # without effect while the kernel still ends the owner, which closes files one by one
        time.sleep(_PAUSE)


def end_processes(folder: Path) -> None:
    """End the processes of this user that have the folder's path in their environment, and all their children.

    Some of Ray's processes overwrite their environment with their title; these are children of a process that does not.
    """
    for _ in range(3):  # a process that was just being started may escape the first time
        if not (processes := [*_processes(folder)]):
            return
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=10)


def _processes(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.uids().real != os.getuid():
                continue
            if process.pid != os.getpid() and process.environ().get(FOLDER) == str(folder):
                yield from process.children(recursive=True)
                yield process


def _remove(folder: Path) -> None:
    """Remove the folder, and its lock last, so that an incomplete removal leaves a folder that can be recognised.

    A process that is just ending may still write into the folder, so the removal is repeated until it succeeds.
    """
    until = time.monotonic() + _PATIENCE
    while not _removed(folder) and time.monotonic() < until:
        time.sleep(_PAUSE)


def _removed(folder: Path) -> bool:
    """Whether the folder is gone after one try."""
    with suppress(FileNotFoundError):  # another process has removed it
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink(missing_ok=True)
        if any(path.name != _LOCK for path in folder.iterdir()):
            return False
        (folder / _LOCK).unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:  # something was written after the last look; without its lock the folder could not be recognised
            (folder / _LOCK).touch(0o600)
    return not folder.exists()


if __name__ == "__main__":
    _remove_own()
