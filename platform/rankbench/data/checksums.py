"""Checksums of raw files, remembered in the cache folder: a file that did not change is not read again to know them.

A file counts as unchanged while its path, size, inode and times (to the nanosecond) are the same. `checksums.json` is replaced
as a whole under a lock; one that is damaged or of another format is ignored and written anew.
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
SETTLED = 2_000_000_000  # nanoseconds; on the coarsest file systems two writes this close may leave the same time of change


def checksums(path: Path, kinds: Iterable[str], cache: Path, anew: bool = False) -> dict[str, str]:
    """The checksums of the file at `path` by kind ("sha256", "md5"): those remembered in the folder `cache`, if the file is
    unchanged since, else by reading it. With `anew` it is always read.
    """
    kinds = tuple(kinds)
    place, state = str(path.resolve()), _state(path)
    known = {} if anew else _read(cache).get(place, {})
    if known.get("state") == state and all(isinstance(known.get(kind), str) for kind in kinds):
        return {kind: known[kind] for kind in kinds}
    began = time.time_ns()
    found = _hash(path, kinds)
    # A write in the same tick of the clock as the last one, while the file was read, would leave no trace.
    if _state(path) == state and began - path.stat().st_mtime_ns > SETTLED:
        _remember(cache, place, {"state": state, **found})
    return found


def _state(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]


def _hash(path: Path, kinds: tuple[str, ...]) -> dict[str, str]:
    hashes = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            for each in hashes.values():
                each.update(chunk)
    return {kind: each.hexdigest() for kind, each in hashes.items()}


def _read(cache: Path) -> dict[str, dict[str, Any]]:
    """What is remembered, by path; nothing where that cannot be read."""
    try:
        content = json.loads((cache / FILE).read_text(encoding="utf-8"))
        files = content["files"] if content["format"] == FORMAT else {}
        return {place: known for place, known in files.items() if isinstance(known, dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remember(cache: Path, place: str, known: dict[str, Any]) -> None:
    """Nobody needs the memory: where it cannot be written, files are read again."""
    try:
        make_folder(cache)
        with FileLock((cache / FILE).with_suffix(".lock")):
            files = {each: about for each, about in _read(cache).items() if Path(each).exists()}
            write_json(cache / FILE, {"format": FORMAT, "files": files | {place: known}})
    except (OSError, StorageError) as error:
        log.debug("checksums are not remembered: %s", error)
