"""Checksums of raw files, stored in the cache folder so that an unchanged file is not read again.

A file counts as unchanged while its path, size, inode and times (to the nanosecond) are the same. `checksums.json` is replaced
as a whole under a lock; if it is damaged or of another format, it is ignored and written again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

from rankbench.core.errors import StorageError
from rankbench.core.files import make_folder, write_json

log = logging.getLogger(__name__)

FILE, FORMAT = "checksums.json", 1
SETTLED = 2_000_000_000  # nanoseconds; on coarse file systems two writes closer than this may have the same time of change


def checksums(path: Path, kinds: Iterable[str], cache: Path, recompute: bool = False) -> dict[str, str]:
    """The checksums of the file at `path` by kind ("sha256", "md5"): those stored in the folder `cache` if the file has not
    changed since, otherwise computed from the file. With `recompute` they are always computed.
    """
    kinds = tuple(kinds)
    key, state = str(path.resolve()), _state(path)
    stored = {} if recompute else _read(cache).get(key, {})
    if stored.get("state") == state and all(isinstance(stored.get(kind), str) for kind in kinds):
        return {kind: stored[kind] for kind in kinds}
    start = time.time_ns()
    computed = hashed(path, kinds)
    # A write while the file was read, in the same clock tick as the write before, would not change the state.
    if _state(path) == state and start - path.stat().st_mtime_ns > SETTLED:
        _store(cache, key, {"state": state, **computed})
    return computed


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def hashed(path: Path, kinds: Iterable[str]) -> dict[str, str]:
    """The checksums of a file by kind."""
    hashes = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            for digest in hashes.values():
                digest.update(chunk)
    return {kind: digest.hexdigest() for kind, digest in hashes.items()}


def _read(cache: Path) -> dict[str, dict[str, Any]]:
    """The stored state and checksums by path; empty if they cannot be read."""
    try:
        content = json.loads((cache / FILE).read_text(encoding="utf-8"))
        files = content["files"] if content["format"] == FORMAT else {}
        return {path: stored for path, stored in files.items() if isinstance(stored, dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _store(cache: Path, key: str, entry: dict[str, Any]) -> None:
    """Store an entry. A failure is only logged, because files without stored checksums are read again."""
    try:
        make_folder(cache)
        with FileLock((cache / FILE).with_suffix(".lock")):
            files = {path: stored for path, stored in _read(cache).items() if Path(path).exists()}
            write_json(cache / FILE, {"format": FORMAT, "files": files | {key: entry}})
    except (OSError, StorageError) as error:
        log.debug("checksums are not stored: %s", error)
