"""Names of rows in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[str]) -> str:
    """Return the names in one line, with semicolons between them if one contains a comma as in "BPR, MF", else with commas."""
    names = list(names)
    return ("; " if any("," in name for name in names) else ", ").join(names)
