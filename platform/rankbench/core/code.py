"""The version of this code as a number, also where there is no version control: the hash of its source files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rankbench.core import plugins


def code_fingerprint() -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all source files of the package and of the loaded plugins."""
    return fingerprint_with(package_fingerprint(), (plugin.sha256 for plugin in plugins.loaded()))


def fingerprint_with(package: str, hashes: Iterable[str]) -> str:
    """The fingerprint of a package and of plugins with these hashes."""
    given = sorted(hashes)
    return hashlib.sha256("".join([package, *given]).encode()).hexdigest()[:16] if given else package


@cache
def package_fingerprint() -> str:
    """The same without plugins. It is that of the time when this was imported: a process runs the code that it has loaded."""
    return plugins.sources_digest(Path(__file__).resolve().parents[1])[:16]


package_fingerprint()
