"""Malformed stores of a leaderboard and of evidence. What is wrong with a single line, `tests/ledger` says."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from harm import harm_tree, harmed_bytes, instead_of_file
from malformed import Case

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KINDS = {"gowalla": ("fits", "claims", "neighbours"), "amazon-beauty": ("searches", "studies")}
# The pages of a whole site take seconds, and read a store as the others do.
COMMANDS = {
    "leaderboard": [
        *4 * [["leaderboard", "show"], ["leaderboard", "show", "--json"]],
        ["leaderboard", "--datasets", "synthetic", "--methods", "ease", "--budget", "10s", "--dry-run", "--no-track"],
        ["leaderboard", "page", "--out", "all.md"],
    ],
    "evidence": [
        *3 * [["reproduce", "status"], ["reproduce", "status", "--json"]],
        ["reproduce", "pages", "--out", "pages"],
    ],
}
Lines = list[dict[str, Any]]


@cache
def _lines(file: str, count: int) -> Lines:
    """The first lines of a store of this checkout, of equal budgets."""
    lines = [json.loads(line) for line in (EXPERIMENTS / file).read_text("utf-8").splitlines()]
    return [line for line in lines if line.get("allowed") == lines[0].get("allowed")][:count]


def _store(kind: str) -> dict[str, Lines]:
    if kind == "evidence":
        names = [f"{dataset}.{kind}.jsonl" for dataset, kinds in KINDS.items() for kind in kinds]
        return {name: _lines(f"evidence/{name}", 3) for name in names}
    sources = {"synthetic": "lastfm", "movielens-100k": "movielens-100k"}
    return {
        f"{name}.entries.jsonl": [line | {"dataset": name} for line in _lines(f"leaderboard/{source}.entries.jsonl", 6)]
        for name, source in sources.items()
    }


def a_store(rng: random.Random) -> Case:
    kind = rng.choice([*COMMANDS])
    store, words = _store(kind), rng.choice(COMMANDS[kind])
    harmed, other = (
        rng.choice([*store]),
        rng.choice(["notes.jsonl", "a.b.jsonl", "gowalla.jsonl", "..fits.jsonl", "é.fits.jsonl"]),
    )
    lines = copy.deepcopy(store[harmed])
    files: dict[str, Any] = {f"store/{name}": _written(each) for name, each in store.items()}
    # After a merge that kept both sides: an entry twice, in lines that differ in a number, or with the signs of the conflict.
    again = rng.choice(lines) | {"peak_memory_gb": 7} if "peak_memory_gb" in lines[0] else rng.choice(lines)
    sides = b"\n".join([b"<<<<<<< HEAD", _written(lines)[:-1], b"=======", _written([again])[:-1], b">>>>>>> other", b""])
    tree = copy.deepcopy(lines)
    harm_tree(rng, rng.choice(tree))
    content, codes, names = rng.choice(
        [
            (_written([*lines, again]), (2,), harmed),
            (sides, (2,), harmed),
            (_written(lines)[: -rng.randrange(2, 40)], (2,), harmed),
            (_written(lines).decode().encode(rng.choice(["utf-16", "utf-32", "utf-16-le"])), (2,), harmed),
            (_written(tree), (0, 2), ""),  # a text may stay readable
            (harmed_bytes(rng, _written(lines)), (0, 2), ""),
            (instead_of_file(rng, _written(lines)), (0, 2, 5), ""),
            (None, (0, 2), ""),  # a line of another dataset is refused, a line without a dataset of its own is none
        ]
    )
    files[f"store/{other if content is None else harmed}"] = _written(lines) if content is None else content
    return Case([*words, "--store", "store"], files, codes=codes, names=names)


def _written(lines: Lines) -> bytes:
    return "".join(f"{json.dumps(line, default=str)}\n" for line in lines).encode()
