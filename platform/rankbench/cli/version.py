"""The version in words: of the release, and of the checkout or, between releases, of the source files."""

from __future__ import annotations

from importlib.metadata import version

from rankbench.core.code import package_fingerprint
from rankbench.tracking.environment import code_revision


def described_version() -> str:
    """Return the version of the installed package; in a checkout, also its commit, with `+changes` if files were changed. A
    package that was built between two releases has the fingerprint of its source files, since many have its version.
    """
    revision, number = code_revision(), version("rankbench")
    if revision:
        return f"{number} (checkout {revision[:12]}{revision[40:]})"
    return f"{number} (code {package_fingerprint()})" if ".dev" in number else number
