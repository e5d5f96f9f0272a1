"""Malformed stores of a leaderboard and of evidence, whose lines others write and git merges."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from harm import harm_tree, harmed_bytes, instead_of_file
from malformed import Case

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
Lines = list[dict[str, Any]]


@cache
def _stored(file: str, count: int) -> Lines:
    """The first lines of a store of this checkout, of equal budgets."""
    lines = [json.loads(line) for line in (EXPERIMENTS / file).read_text("utf-8").splitlines()]
    return [line for line in lines if line.get("allowed") == lines[0].get("allowed")][:count]


def a_store(rng: random.Random) -> Case:
    leaderboard = {
        f"{name}.entries.jsonl": [line | {"dataset": name} for line in _stored(f"leaderboard/{source}.entries.jsonl", 6)]
        for name, source in (("synthetic", "lastfm"), ("movielens-100k", "movielens-100k"))
    }
    evidence = {
        f"gowalla.{kind}.jsonl": _stored(f"evidence/gowalla.{kind}.jsonl", 3) for kind in ("fits", "claims", "neighbours")
    } | {f"amazon-beauty.{kind}.jsonl": _stored(f"evidence/amazon-beauty.{kind}.jsonl", 3) for kind in ("searches", "studies")}
    # The pages of a whole site take seconds, and read a store as the others do.
    shows = 4 * [["leaderboard", "show"], ["leaderboard", "show", "--json"]]
    left = ["leaderboard", "--datasets", "synthetic", "--methods", "ease", "--budget", "10s", "--dry-run", "--no-track"]
    states = 3 * [["reproduce", "status"], ["reproduce", "status", "--json"]]
    store, commands = rng.choice(
        [
            (leaderboard, [*shows, left, ["leaderboard", "page", "--out", "all.md"]]),
            (evidence, [*states, ["reproduce", "pages", "--out", "pages"]]),
        ]
    )
    words = rng.choice(commands)
    harmed = rng.choice([*store])
    lines = copy.deepcopy(store[harmed])
    files: dict[str, Any] = {f"store/{name}": _written(each) for name, each in store.items()}
    codes, names = (2,), harmed
    how = rng.randrange(10)
    if how < 3:
        files[f"store/{harmed}"] = rng.choice(LINES)(rng, lines)
    elif how < 6:
        files[f"store/{harmed}"] = _harmed_text(rng, _written(lines))
    elif how == 6:
        # Any place of a line: a text may stay readable.
        harm_tree(rng, lines[rng.randrange(len(lines))])
        files[f"store/{harmed}"], codes, names = _written(lines), (0, 2), ""
    elif how == 7:
        files[f"store/{harmed}"], codes, names = harmed_bytes(rng, _written(lines)), (0, 2), ""
    elif how == 8:
        files[f"store/{harmed}"], codes, names = instead_of_file(rng, _written(lines)), (0, 2, 5), ""
    else:
        # Another's file among those of the store.
        other = rng.choice(["notes.jsonl", "a.b.jsonl", "gowalla.jsonl", "..fits.jsonl", "é.fits.jsonl", f"{'x' * 200}.jsonl"])
        files[f"store/{other}"], names = _written(lines), ""
        codes = (0, 2)  # a line of another dataset is refused, a line without a dataset of its own is none
    return Case([*words, "--store", "store"], files, codes=codes, names=names)


def _written(lines: Lines) -> bytes:
    return "".join(f"{json.dumps(line, default=str)}\n" for line in lines).encode()


def _twice(rng: random.Random, lines: Lines) -> bytes:
    """Two lines of one entry, as after a merge that kept both sides; they differ in a number that nothing compares."""
    again = copy.deepcopy(rng.choice(lines))
    again |= {name: 7 for name in ("peak_memory_gb", "users", "seconds") if isinstance(again.get(name), int | float)}
    lines.insert(rng.randrange(len(lines) + 1), again)
    return _written(lines)


def _key_twice(rng: random.Random, lines: Lines) -> bytes:
    """A key that a line has twice."""
    texts = _written(lines).decode().splitlines()
    at = rng.randrange(len(texts))
    name = rng.choice([*lines[at]])
    texts[at] = f"{texts[at][:-1]}, {json.dumps(name)}: {json.dumps(lines[at][name])}}}"
    return "\n".join([*texts, ""]).encode()


def _of_another_dataset(rng: random.Random, lines: Lines) -> bytes:
    rng.choice(lines)["dataset"] = rng.choice(["gowalla-2", "", "../../x", "<b>x</b>", "x" * 300, "a\0b"])
    return _written(lines)


def _wrong_value(rng: random.Random, lines: Lines) -> bytes:
    line = rng.choice(lines)
    name = rng.choice(
        [name for name in ("budget", "metrics", "seeds", "seed", "params", "space", "pairs", "values") if name in line]
    )
    wrong = {
        "budget": [0, -1, "10", True, None, 1e308, float("nan"), [10]],
        "metrics": [
            {"ndcg@20": [1e308, None, None]},
            {"ndcg@20": [float("inf"), 0, 1]},
            {"ndcg@20": 0.1},
            [],
            None,
            {"ndcg@20": []},
        ],
        "seeds": [[-1], ["0"], 3, [None], [0.5], [2**70]],
        "seed": [-1, "0", None, 0.5, 2**70],
        "params": [[], None, "lam=1", 7],
        "space": [[], None, "lam=1", 7],
        "pairs": [{}, None, [None], [{}], "a"],
        "values": [{"a: b": 1e400}, {"a: b": None}, [], None, {"a: b": "x"}],
    }
    line[name] = rng.choice(wrong[name])
    return _written(lines)


def _hostile_name(rng: random.Random, lines: Lines) -> bytes:
    line = rng.choice(lines)
    name = rng.choice([name for name in ("entrant", "method", "study", "table") if name in line])
    line[name] = rng.choice(["", "../../x", "<b>x</b>", "a\0b", "x" * 10_000, "a/b", 7, None, ["a"]])
    return _written(lines)


LINES: list[Callable[[random.Random, Lines], bytes]] = [
    _twice,
    _twice,
    _key_twice,
    _of_another_dataset,
    _wrong_value,
    _hostile_name,
]


def _harmed_text(rng: random.Random, content: bytes) -> bytes:
    texts = content.split(b"\n")[:-1]
    at = rng.randrange(len(texts))
    line = texts[at]
    how = rng.randrange(10)
    if how < 2:
        return b"\n".join([*texts[:at], b"<<<<<<< HEAD", line, b"=======", line, b">>>>>>> other", *texts[at + 1 :], b""])
    if how == 2:
        texts.insert(
            at, rng.choice([b"<<<<<<< HEAD", b"=======", b">>>>>>> other", b"# a comment", b"null", b"[]", b"{}", b"7"])
        )
    elif how == 3:
        texts[at] = line[: rng.randrange(1, len(line))]
    elif how == 4:
        place = rng.randrange(len(line))
        texts[at] = line[:place] + b"\0" + line[place:]
    elif how == 5:
        return content.decode().encode(rng.choice(["utf-16", "utf-32", "utf-16-le"]))
    elif how == 6:
        texts[at] = line[:-1] + ', "more": "é"}'.encode("latin-1")
    elif how == 7:
        more = [b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b'"' + b"x" * 20_000_000 + b'"', b"1e400", b"-1e308", b"NaN"]
        texts[at] = line[:-1] + b', "more": ' + rng.choice(more) + b"}"
    elif how == 8:
        texts[at] = line + line
    else:
        texts[at] = line.replace(b'": "', rng.choice([b"': '", b'" "', b'": ', b'": "\\ud800', b'": "\\u']), 1)
    return b"\n".join([*texts, b""])
