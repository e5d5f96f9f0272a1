"""The version in words: of the release, and of the checkout if there is one."""

from __future__ import annotations

from importlib.metadata import version

from rankbench.tracking.environment import code_revision


def described_version() -> str:
    """Return the version of the installed package; in a checkout, also its commit, with `+changes` if files were changed."""
    revision = code_revision()
    return version("rankbench") + (f" (checkout {revision[:12]}{revision[40:]})" if revision else "")
