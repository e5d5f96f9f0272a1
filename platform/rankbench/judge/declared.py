"""Comparisons that are fixed before a measurement: a YAML file with its date, so that no pair is chosen by its result.

    fixed: 2026-11-28
    after: an earlier board
    pairs: [[ials, ease], [sl, bpr]]
    groups: {linear: [ease, slim], als: [ials, wrmf]}
    traits: [[linear, als]]

`after` says which results were known then, if any were. `pairs` are tested by Wilcoxon's signed-rank test. For each pair of
groups in `traits`, it is tested which traits of a dataset go with their difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rankbench.core.config import Strict, read_yaml, validate
from rankbench.core.errors import require
from rankbench.core.registry import nearest


class Declared(Strict):
    """The content of such a file."""

    fixed: date
    after: str = ""
    pairs: tuple[tuple[str, str], ...]
    groups: dict[str, tuple[str, ...]] = {}
    traits: tuple[tuple[str, str], ...] = ()


def read_declared(path: Path) -> Declared:
    """Read a file of comparisons. Raises ConfigError that names the file and the field, for a pair that is there twice or that
    compares something with itself, and for an unknown group.
    """
    found = validate(Declared, read_yaml(path), str(path))
    _require_pairs(found.pairs, f"{path}: pairs")
    _require_pairs(found.traits, f"{path}: traits")
    for name in (name for pair in found.traits for name in pair):
        require(name in found.groups, f"{path}: traits: unknown group {name!r}{nearest(name, found.groups)}")
    return found


def _require_pairs(pairs: Sequence[tuple[str, str]], source: str) -> None:
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        shown = f"[{', '.join(pair)}]"
        require(pair[0] != pair[1], f"{source}: {shown} compares {pair[0]} with itself; name two")
        require(frozenset(pair) not in seen, f"{source}: {shown} is there twice; leave one out")
        seen.add(frozenset(pair))
