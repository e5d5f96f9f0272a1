"""Write files and folders atomically: they appear complete or not at all."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from rankbench.core.errors import StorageError, require

NOTHING_FREE = 1 << 20  # bytes; a disk with less free space counts as full
SCRATCH = ".tmp-rankbench-"  # how the names of scratch files and folders begin, so that no other program's are removed
ABANDONED = 3600.0  # seconds after which scratch files without a living owner are removed


class Fence(Protocol):
    """A claim that may be superseded by one with a higher number; see `core.attempts`."""

    @property
    def number(self) -> int: ...
    def require_newest(self) -> None: ...


@contextmanager
def atomic_folder(target: Path, replace: bool = False, fence: Fence | None = None, exclusive: bool = False) -> Iterator[Path]:
    """Yield a scratch folder beside `target` and rename it to `target` on success; on failure nothing is left.

    If `target` exists by then, another process has written the same content first, and its copy is kept. With `replace`, the
    new folder replaces it in one step, so that there is one of the two at every moment. With a `fence` nothing is renamed once
    that is superseded; its error is raised. Scratch folders that killed processes left in the same folder more than an hour ago
    are removed. Raises StorageError if the disk is full, and with `exclusive` if `target` exists.
    """
    scratch = target.parent / f"{SCRATCH}{target.name}-{_owner(fence)}{secrets.token_hex(4)}"
    lock = None
    try:
        with _making(target, fence):
            scratch.mkdir()
            lock = _lock(scratch)
            yield scratch
            for path in scratch.rglob("*"):
                if path.is_file():
                    _sync(path)
            if fence:
                fence.require_newest()
            try:
                scratch.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if exclusive:
                    raise StorageError(f"{target}: another process has made it meanwhile; choose another folder") from None
                if replace:
                    _exchange(scratch, target)
    finally:
        # After an exchange, this is the old folder.
        shutil.rmtree(scratch, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextmanager
def _making(target: Path, fence: Fence | None) -> Iterator[None]:
    """Around the making of `target` beside it and the rename: what goes wrong is said, and a rename is written to disk."""
    make_folder(target.parent)
    _sweep_abandoned(target.parent)
    try:
        with disk_errors_are_clear(target):
            yield
            _sync(target.parent)  # without this, a power failure may undo the rename
    except FileNotFoundError:
        if fence:
            fence.require_newest()  # a newer attempt has removed the scratch
        raise


def _exchange(first: Path, second: Path) -> None:
    """Swap the names of two folders in one step. A file system that does not support this (NFS) needs several renames, between
    which `second` does not exist.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "darwin":
            code = library.renamex_np(*names, 2)  # RENAME_SWAP
        else:
            code = library.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD twice, RENAME_EXCHANGE
        number = ctypes.get_errno() if code else 0
    except AttributeError:  # an old C library
        number = errno.ENOSYS
    if number == 0:
        return
    if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(number, os.strerror(number), str(second))
    aside = first.with_name(f"{first.name}-before")
    second.rename(aside)
    try:
        first.rename(second)
    except OSError:
        aside.rename(second)
        raise
    aside.rename(first)


def _lock(folder: Path) -> int | None:
    """Lock `folder` for this process until the returned handle is closed. Returns None if another process holds the lock, or if
    the file system (NFS) has no locks on folders.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@cache
def _sweep_abandoned(folder: Path) -> None:
    """Remove scratch files of killed processes in `folder`, once per process because a folder may have thousands of entries."""
    for scratch in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            remove_abandoned(scratch)


def remove_abandoned(scratch: Path) -> bool:
    """Remove a scratch file or folder, and return True, unless a process may still write it. Raises OSError if it is gone."""
    newest = max(path.lstat().st_mtime for path in (scratch, *scratch.rglob("*")))
    if time.time() - newest < ABANDONED:
        return False
    if not scratch.is_dir():
        scratch.unlink()
    elif (handle := _lock(scratch)) is not None:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(handle)
    return not scratch.exists()


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents. Raises StorageError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be created ({error.strerror}); choose another folder") from None


def require_writable(folder: Path) -> None:
    """Raise StorageError if `folder` cannot be created or written. Creates nothing."""
    above = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise StorageError(f"{folder}: cannot be created or written; choose another folder")
    if is_too_long(folder):
        raise StorageError(f"{folder}: the name is too long; choose another folder")


def require_writable_file(target: Path) -> None:
    """Raise ConfigError if the file `target` is a folder, StorageError if its folder cannot be created or written. Creates
    nothing.
    """
    if is_too_long(target):
        raise StorageError(f"{target}: the name is too long; choose another")
    require(not target.is_dir(), f"{target}: is a folder; name a file")
    require_writable(target.parent)


def is_too_long(path: Path) -> bool:
    """Whether the name is too long for the file system, with room for scratch names and for files in the folder."""
    names = [len(os.fsencode(part)) for part in path.parts]
    whole = len(os.fsencode(path.absolute()))
    return max(names, default=0) > os.pathconf("/", "PC_NAME_MAX") - 32 or whole > os.pathconf("/", "PC_PATH_MAX") - 512


def sweep_scratch(target: Path) -> None:
    """Remove what killed processes left of `target`. Call this only while holding the lock for its creation."""
    for scratch in target.parent.glob(f"{SCRATCH}{glob.escape(target.name)}-*"):
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def atomic_file(target: Path, fence: Fence | None = None) -> Iterator[Path]:
    """Yield a scratch path and move it over `target` on success; an old `target` stays intact until then.

    With a `fence` nothing is moved once that is superseded; its error is raised.
    """
    # The suffix is kept, because some writers choose their format by it.
    scratch = target.parent / f"{SCRATCH}{_owner(fence)}{secrets.token_hex(4)}-{target.name}"
    try:
        with _making(target, fence):
            yield scratch
            _sync(scratch)
            if fence:
                fence.require_newest()
            with suppress(FileNotFoundError):  # who may read the old file may read the new one, and nobody else
                scratch.chmod(stat.S_IMODE(target.stat().st_mode))
            scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _owner(fence: Fence | None) -> str:
    return f"{fence.number:06d}-" if fence else ""


def scratch_number(scratch: Path, target: Path) -> int | None:
    """The number of the fence under which `scratch` is written for `target`; None if it has none or is for another target."""
    name = re.escape(target.name)
    token = "[0-9a-f]{8}"
    match = re.fullmatch(rf"{re.escape(SCRATCH)}(?:{name}-(\d{{6}})-{token}|(\d{{6}})-{token}-{name})", scratch.name)
    return int(match[1] or match[2]) if match else None


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(target: Path, text: str, fence: Fence | None = None) -> Path:
    """Write `text` atomically. Returns `target`."""
    with atomic_file(target, fence) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return target


def write_json(target: Path, value: Any, fence: Fence | None = None) -> Path:
    """Write `value` atomically as indented JSON. NaN and infinity are refused. Returns `target`."""
    return write_text(target, json.dumps(value, indent=2, allow_nan=False) + "\n", fence)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors_are_clear(target: Path) -> Iterator[None]:
    """Turn errors of a full or read-only disk, whichever library raises them, into a StorageError that names `target`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error_number(error)
        # NumPy reports an incomplete write without the system's error number.
        short = isinstance(error, OSError) and number is None and shutil.disk_usage(target.parent).free < NOTHING_FREE
        if short or number in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"{target}: no space left on the device") from error
        if number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise StorageError(f"{target}: cannot be written ({os.strerror(number)}); choose another folder") from error
        raise


def error_number(error: OSError | SafetensorError) -> int | None:
    """Return the system's number of an error; safetensors writes it into its message."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None
