"""The address of a raw file, as messages and records may show it."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from rankbench.core.errors import printable


def without_query(url: str) -> str:
    """Return the address without its query, which may be a key that gives access to the file."""
    address, question, _ = url.partition("?")
    return printable(address) + ("?..." if question else "")


def filename_of(url: str) -> str:
    """The name of the file at the address; neither query nor fragment belong to it."""
    return PurePosixPath(urlsplit(url).path).name


def holds_an_account(url: str) -> bool:
    """Whether the address has a user name or a password."""
    return "@" in urlsplit(url).netloc
