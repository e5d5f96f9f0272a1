"""Where the pages of a SQLite store are served: the address of the server that was last started on it, in a file beside it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from rankbench.core.errors import StorageError
from rankbench.core.files import write_text
from rankbench.tracking.address import sqlite_file

DEFAULT = "http://127.0.0.1:5000"  # where `rankbench ui` listens if nothing else is said
_ADDRESS = re.compile(r"http://[\w.:\[\]-]{1,255}")  # a results folder may be another person's


def served_at(uri: str) -> str:
    """Return the address at which the store was served last, DEFAULT if it never was."""
    file = sqlite_file(uri)
    with suppress(OSError, ValueError):
        if file and (path := _beside(file)).is_file() and _ADDRESS.fullmatch(text := path.read_text("utf-8")[:300].strip()):
            return text
    return DEFAULT


def remember(uri: str, address: str) -> None:
    """Keep the address of a server that now serves the store, if there is a place for it."""
    if file := sqlite_file(uri):
        with suppress(StorageError, OSError):
            write_text(_beside(file), f"{address}\n")


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.address")
