"""Outputs that appear whole or not at all."""

from __future__ import annotations

import errno
import glob
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankbench.errors import StorageError, require

NOTHING_FREE = 1 << 20  # bytes; a disk with less has just run full


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a scratch folder beside `target` and rename it to `target` on success; on failure nothing is left.

    When `target` exists by then, another process was first and made the same thing: its copy is kept.
    Raises StorageError when the disk is full.
    """
    make_folder(target.parent)
    scratch = target.parent / f".tmp-{target.name}-{secrets.token_hex(4)}"
    try:
        with disk_errors_are_clear(target):
            scratch.mkdir()
            yield scratch
            for path in scratch.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
            try:
                scratch.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it. Raises StorageError, naming it, when that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror}); choose another folder") from None


def require_place(folder: Path) -> None:
    """Raise StorageError, and leave nothing behind, when `folder` is not there and cannot be made, or cannot be written."""
    above = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise StorageError(f"{folder}: cannot be made or written; choose another folder")
    if is_too_long(folder):
        raise StorageError(f"{folder}: the name is too long; choose another folder")


def require_file_place(target: Path) -> None:
    """Raise, and leave nothing behind, when the file `target` cannot be written: ConfigError where it is a folder, StorageError
    where its folder cannot be made or written.
    """
    if is_too_long(target):
        raise StorageError(f"{target}: the name is too long; choose another")
    require(not target.is_dir(), f"{target}: is a folder; name a file")
    require_place(target.parent)


def is_too_long(path: Path) -> bool:
    """Whether the file system takes no such name, or has no room in it for what is put before, behind and below it."""
    names = [len(os.fsencode(part)) for part in path.parts]
    whole = len(os.fsencode(path.absolute()))
    return max(names, default=0) > os.pathconf("/", "PC_NAME_MAX") - 32 or whole > os.pathconf("/", "PC_PATH_MAX") - 512


def sweep_scratch(target: Path) -> None:
    """Remove what killed processes left of `target`. Only for one who holds the lock of those that make it."""
    for scratch in target.parent.glob(f".tmp-{glob.escape(target.name)}-*"):
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a scratch path and move it over `target` on success; an old `target` stays intact until then."""
    make_folder(target.parent)
    # The suffix is kept: some writers choose their format by it.
    scratch = target.parent / f".tmp-{secrets.token_hex(4)}-{target.name}"
    try:
        with disk_errors_are_clear(target):
            yield scratch
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
            scratch.replace(target)
            _sync(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Until this a new name may be forgotten when the power goes, and an old one come back."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(target: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinity are refused."""
    with atomic_file(target) as scratch:
        scratch.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def disk_errors_are_clear(target: Path) -> Iterator[None]:
    """Turn the system's word for a full or closed disk into a StorageError that names `target`."""
    try:
        yield
    except OSError as error:
        # NumPy reports a short write without the system's number.
        short = error.errno is None and shutil.disk_usage(target.parent).free < NOTHING_FREE
        if short or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"{target}: no space left on the device") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise StorageError(f"{target}: cannot be written ({error.strerror}); choose another folder") from error
        raise
