"""Malformed experiment files with a `base`, and malformed bases."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml
from harm import a_word, harmed_yaml
from malformed import EXPERIMENT, TOY, Case

CHILD: dict[str, Any] = {
    "name": "child",
    "question": "Which, with other values?",
    "base": "toy-losses.yaml",
    "arms": [{"name": "ease", "params": {"lam": 4}}, {"like": "iALS", "name": "iALS, again"}, {"method": "popularity"}],
}
SHAPES = [None, [], {}, "", "text", 7, 1.5, True, ["a"], [["a"]], [None], [7], {"a": 1}, {"a": ["b"]}, [[], {}], "ease"]
BOMB = "x: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"x{n}: &{letter} [{', '.join([f'*{before}'] * 9)}]\n"
    for n, (before, letter) in enumerate(zip("abcdefgh", "bcdefghi", strict=False))
)
LOOP = "arms: &a [*a]\n"


def a_base(rng: random.Random) -> Case:
    base, child = copy.deepcopy(EXPERIMENT), copy.deepcopy(CHILD)
    files = dict(TOY)
    codes, how = (2,), rng.randrange(9)
    if how == 0:
        child["base"] = rng.choice(
            [None, [], {}, 7, True, "", ".", "..", "/", "../x/toy-losses.yaml", "none.yaml", ["toy-losses.yaml"]]
        )
    elif how == 1:
        child["base"] = rng.choice(["child.yaml", "a\0b", "x" * 300, "\u202e", "toy.yaml", "raw.csv", a_word(rng)])
    elif how == 2:
        base["base"] = rng.choice(["child.yaml", "toy-losses.yaml", None, "other.yaml"])
    elif how == 3:
        rng.choice([base, child])["arms"] = rng.choice(SHAPES)
        codes = (0, 2)  # a child may have no arms of its own
    elif how in (4, 5):
        tree = rng.choice([base, child])
        arm = rng.choice(tree["arms"])
        name = rng.choice(["params", "params", "name", "method", "like", "published", "chosen"])
        arm[name] = rng.choice(SHAPES)
        codes = (0, 2)  # no parameters are the defaults, and a text is a name
    elif how == 6:
        files["toy-losses.yaml"] = rng.choice(
            [b"", b"- a\n", b"text\n", b"7\n", b"null\n", b"\0", BOMB.encode(), LOOP.encode()]
        )
    else:
        codes = (0, 2)
        if how == 7:
            files["toy-losses.yaml"] = harmed_yaml(rng, base)
        else:
            files["child.yaml"] = harmed_yaml(rng, child)
    for name, content in (("toy-losses.yaml", base), ("child.yaml", child)):
        files.setdefault(name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    words = rng.choice([["sweep", "child.yaml", "--dry-run"], ["sweep", "child.yaml", "--dry-run", "--json"]])
    return Case(words, files, codes=codes, names="child.yaml" if how == 0 else "")
