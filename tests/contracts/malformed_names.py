"""Names that no method, loss, encoder, metric, protocol, arm or dataset may have."""

# ruff: noqa: E501  a value a line would be longer still

from __future__ import annotations

import copy
import random

import yaml
from malformed import CARD, EXPERIMENT, TOY, Case
from malformed_plugins import ENCODER, LOSS, METRIC, PROTOCOL, READER, SOLVER

BAD = [
    "", " ", ".", "..", "../../x", "/x", "a/b", "a\\b", "<b>x</b>", "<script>alert(1)</script>", "a=b", "ev*l", "e?l", "[ab]", "family:x", "!x",
    "a,b", "a b", "a\tb", "a\nb", "a\0b", "a\x1b[31mb", "x" * 10_000, "x" * 300, "\u202eabc", "\u05d0\u05d1", "\u0430b", "e\u0301", "\uff45ase",
    "\u200bease", "a\ud800b", "-x", "--help", "$(id)", "`id`", "a|b", "a\"b", "a'b", "%s", "{x}", "~x", "a;b", "&amp;", "#x", "@x", "x@5", "\U0001f600",
]  # fmt: skip
PLUGINS = {"loss": LOSS, "metric": METRIC, "protocol": PROTOCOL, "reader": READER, "encoder": ENCODER, "solver": SOLVER}


def a_name(rng: random.Random) -> Case:
    name = rng.choice(BAD)
    where = rng.choice([*PLUGINS, *PLUGINS, "dataset", "dataset", "arm", "arm", "word", "word", "word"])
    files = dict(TOY)
    if where in PLUGINS:
        text = PLUGINS[where].format(before="pass", value="[good]" if where == "reader" else "good")
        text = text.replace("def given(hits", "def _given(hits") + (
            "_given.__name__ = NAME\nmetric(_given)\n" if where == "metric" else ""
        )
        text = text.replace("@metric\n", "").replace('"given"', "NAME")
        files["mine.py"] = (f"NAME = {name!a}\n" + text).encode()
        words = rng.choice([["run", "toy.yaml", "popularity", "--no-track"], ["methods"], ["data", "describe", "toy.yaml"]])
        return Case([*words, "--plugin", "mine.py"], files, codes=(2,), names="mine.py", about=repr(name)[:80])
    if where == "dataset":
        card = copy.deepcopy(CARD) | {"name": name}
        files["toy.yaml"] = yaml.safe_dump(card).encode()
        words = rng.choice(
            [["run", "toy.yaml", "popularity", "--no-track"], ["data", "describe", "toy.yaml"], ["data", "fetch", "toy.yaml"]]
        )
        return Case(words, files, codes=(2,), names="toy.yaml")
    if where == "arm":
        experiment = copy.deepcopy(EXPERIMENT)
        arm = rng.choice(experiment["arms"])
        key = rng.choice(["name", "name", "method"])
        arm[key] = name
        files["toy-losses.yaml"] = yaml.safe_dump(experiment).encode()
        # The label of a row may be any short text of one line without markup and patterns.
        label = key == "name" and name.isprintable() and 0 < len(name) <= 64 and not {*name} & {*r"<>&/\|`*?[]"}
        return Case(["sweep", "toy-losses.yaml", "--dry-run"], files, codes=(0, 2) if label else (2,), about=repr(name)[:80])
    word = name.replace("\0", "").replace("\ud800", "")
    words = rng.choice(
        [
            ["run", "toy.yaml", word, "--no-track"],
            ["fit", "toy.yaml", word, "--out", "new-model"],
            ["run", word, "popularity", "--no-track"],
            ["run", "toy.yaml", "bpr", f"model={word}", "--no-track"],
            ["run", "toy.yaml", "popularity", f"data.name={word}", "--no-track"],
            ["run", "toy.yaml", "popularity", f"data.split.protocol={word}", "--no-track"],
            ["run", "toy.yaml", "popularity", "--metrics", word, "--no-track"],
            ["leaderboard", "--methods", word, "--dry-run", "--no-track"],
            ["leaderboard", "--datasets", word, "--dry-run", "--no-track"],
            ["sweep", "toy-losses.yaml", "--arms", word, "--dry-run"],
            ["methods", word],
            ["study", word],
            ["data", "import", "raw.csv", "--name", word, "--out", "new.yaml"],
        ]
    )
    return Case(words, files, codes=(0, 2))
