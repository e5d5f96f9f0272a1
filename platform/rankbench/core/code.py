"""The version of this code as a number, also where there is no version control: the hash of its source files."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def code_fingerprint() -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all source files of the package, with their paths."""
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
