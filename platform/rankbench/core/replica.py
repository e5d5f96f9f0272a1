"""Folders in a store and their local copies, with checksums.

A folder is stored file by file, and last the checksums of all of them: without these it is not there yet. It never changes
afterwards. A copy appears complete or not at all, and keeps the checksums, with the place that it was copied from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rankbench.core.errors import DataError, first_line
from rankbench.core.files import Fence, atomic_folder, sha256_of, write_text
from rankbench.core.storage import Storage

CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class _Checksums:
    """checksums.json: where the folder is stored, and the SHA-256 of each file."""

    stored: str
    sha256: dict[str, str]

    @classmethod
    def read(cls, content: bytes, source: str) -> _Checksums:
        try:
            checksums = TypeAdapter(cls).validate_json(content)
        except ValidationError as error:
            raise DataError(f"{source}: not a list of checksums ({first_line(error)})") from None
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in checksums.sha256):
            raise DataError(f"{source}: names a file outside of the folder")
        return checksums


def push(folder: Path, storage: Storage, key: str) -> None:
    """Store all files of `folder` below `key`, and the checksums in both places.

    Raises StorageError if the store cannot be written.
    """
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != CHECKSUMS:
            digests[name] = sha256_of(path)
            storage.upload(f"{key}/{name}", path)
    text = json.dumps({"stored": f"{storage}/{key}", "sha256": digests}, indent=2) + "\n"
    storage.write(f"{key}/{CHECKSUMS}", text.encode())
    write_text(folder / CHECKSUMS, text)


def pull(storage: Storage, key: str, target: Path, replace: bool = False, fence: Fence | None = None) -> bool:
    """Copy the folder below `key` to `target`; with `replace` an earlier copy is replaced, otherwise kept.

    Returns False if there is no complete folder below `key`. Raises DataError if a file differs from its checksum.
    """
    content = storage.read(f"{key}/{CHECKSUMS}")
    if content is None:
        return False
    checksums = _Checksums.read(content, f"{storage}/{key}/{CHECKSUMS}")
    with atomic_folder(target, replace=replace, fence=fence) as scratch:
        for name, digest in checksums.sha256.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            storage.download(f"{key}/{name}", path)
            if sha256_of(path) != digest:
                raise DataError(f"{storage}/{key}/{name}: damaged (not the sha256 of {CHECKSUMS}); remove {storage}/{key}")
        (scratch / CHECKSUMS).write_bytes(content)
    return True


def is_copy_of(folder: Path, storage: Storage, key: str) -> bool:
    """Whether `folder` is a copy of what is stored below `key`. The store is not asked."""
    path = folder / CHECKSUMS
    return path.is_file() and _Checksums.read(path.read_bytes(), str(path)).stored == f"{storage}/{key}"
