"""Malformed inputs of the command line, from seeded generators.

A case is a kind and a number: `case("names", 17)` is the same command on the same files everywhere. campaign.py runs them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import malformed
from malformed import SEED, Case
from malformed_bases import a_base
from malformed_folders import a_folder
from malformed_names import a_name
from malformed_plugins import a_return
from malformed_stores import a_store

# What makes a case of a kind. Those of the kind "files" are numbered by their own module; a negative number is harmless there.
MAKERS: dict[str, Callable[[random.Random], Case]] = {
    "stores": a_store, "bases": a_base, "folders": a_folder, "returns": a_return, "names": a_name,
}  # fmt: skip
KINDS = {
    "files": 1000,
    "stores": 350,
    "bases": 400,
    "folders": 250,
    "returns": 150,
    "names": 400,
}  # cases of the whole campaign
Number = tuple[str, int]


def case(kind: str, number: int) -> Case:
    return malformed.case(number) if kind == "files" else MAKERS[kind](random.Random(f"{SEED}/{kind}/{number}"))


def part(kind: str, count: int | None = None) -> list[Number]:
    """The cases of a kind, or so many of them, from all over it."""
    return [(kind, number) for number in range(0, KINDS[kind], KINDS[kind] // count + 1 if count else 1)]
