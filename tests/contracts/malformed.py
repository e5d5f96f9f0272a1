"""Malformed inputs of the command line, from seeded generators.

A case is a kind and a number: `case("names", 17)` is the same command on the same files everywhere. campaign.py runs them.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "data" / "readers"))  # for campaign.py, run by hand
from harm import ARGUMENTS, DEEP, WORDS, harm_file, harmed_bytes, harmed_text, harmed_yaml, instead_of_file
from whole_files import VALID

SEED = 20261122


@dataclass
class Case:
    """A command, what the environment says, and the files that lie in its folder: name → bytes, or a function of a path that
    makes something else of it. `models`, `results`: whether the fitted models and the records lie there, too. `codes`: the exit
    codes that are true, `names`: what the line of an error must name, `about`: what else was harmed.
    """

    words: list[str]
    files: dict[str, bytes | Callable[[Path], Any]]
    environment: dict[str, str] = field(default_factory=dict)
    models: bool = False
    results: bool = False
    harm: Callable[[Path], Any] | None = None
    codes: tuple[int, ...] = (0, 2, 3, 5)
    names: str = ""
    about: str = ""

    def __str__(self) -> str:
        names = ", ".join(self.files)
        words = " ".join(repr(word[:80]) for word in self.words)
        return f"{self.environment or ''} rankbench {words} [{names}] {self.about}".strip()


# The inputs before they are harmed.
PAIRS = [(user, item) for user in range(12) for item in range(14) if (user * item) % 3 != 1]
TABLE = "user,item,rating,time\n" + "".join(f"{user},{item},5,{item}\n" for user, item in PAIRS)
CARD: dict[str, Any] = {
    "name": "toy",
    "title": "A toy",
    "source": {"files": {"all": {"file": "raw.csv"}}, "home": "https://toy.org", "licence": "any"},
    "read": {"format": "delimited", "separator": ",", "header": True, "user": "user", "item": "item", "value": "rating"},
    "prepare": [{"min_value": 3}, {"duplicates": "max"}, {"min_items_per_user": 2}, {"k_core": 2}],
    "split": {"protocol": "random-per-user", "test": 0.2, "valid": 0.2, "seed": 1},
    "expect": {"raw": {"users": 12}, "prepared": {"items": 14}},
}
BUILT_IN: dict[str, Any] = {
    "name": "built-in",
    "source": {"generator": {"users": 60, "items": 30, "interactions_per_user": 8.0, "tastes": 4, "seed": 1}},
    "split": {"protocol": "held-out-users", "valid": 10, "test": 10, "fold_in": 0.8, "seed": 3},
}  # fmt: skip
CHILD: dict[str, Any] = {
    "name": "child",
    "base": "base.yaml",
    "arms": [{"name": "ease", "params": {"lam": 4}}, {"like": "iALS", "name": "iALS, again"}, {"method": "popularity"}],
}
EXPERIMENT: dict[str, Any] = {
    "name": "toy-losses",
    "question": "Which?",
    "datasets": ["./toy.yaml", {"name": "synthetic", "source": {"generator": {"users": 40, "items": 30}}}],
    "arms": [
        {"method": "ease", "params": {"lam": {"grid": [1, 10]}}, "published": {"gowalla": {"ndcg@5": 0.1}}},
        {"method": "ials", "name": "iALS", "params": {"lam": {"loguniform": [0.01, 1]}, "embedding_dim": 4, "iterations": 2}},
        {"method": "psl", "params": {"tau": {"uniform": [0.1, 1]}, "epochs": 2, "surrogate": {"choice": ["tanh", "relu"]}}},
        {"method": "edlae", "params": {"p": 0.5, "lam": {"randint": [1, 9]}}, "chosen": {"gowalla": {"lam": 3}}},
    ],
    "metrics": ["recall", "ndcg"],
    "cutoffs": [5, 10],
    "search": {"trials": 2, "choose": {"metric": "ndcg@5", "on": "valid"}, "seed": 1, "by": "random"},
    "final": {"seeds": [1, 2], "split_seeds": [1]},
    "resources": {"cpus": 1},
    "not_run": [{"name": "other", "why": "not built", "published": {"gowalla": {"ndcg@5": 0.2}}}],
}
RANKED = [(user, item, item + 1) for user in range(12) for item in range(14)]
LISTS = {
    "lists.csv": ("user,item,rank\n" + "".join(f"{user},{item},{rank}\n" for user, item, rank in RANKED)).encode(),
    "lists.tsv": ("user\titem\tscore\n" + "".join(f"{user}\t{item}\t{-rank}\n" for user, item, rank in RANKED)).encode(),
    "lists.run": "".join(f"{user} Q0 {item} {rank} {-rank} x\n" for user, item, rank in RANKED).encode(),
}
TOY = {"raw.csv": TABLE.encode(), "toy.yaml": yaml.safe_dump(CARD, sort_keys=False).encode()}
FILES = TOY | {
    "toy-losses.yaml": yaml.safe_dump(EXPERIMENT, sort_keys=False).encode(),
    "new.csv": b"user,item\n77,1\n77,2\n",
    "lists.csv": LISTS["lists.csv"],
}
COMMANDS = [
    ["run", "toy.yaml", "ease", "lam=1", "data.split.seed=2", "--cutoffs", "3,5", "--metrics", "recall,auc", "--no-track"],
    ["run", "toy.yaml", "edlae", "p=0.5", "lam=2", "--seed", "1", "--dtype", "float64", "--threads", "1", "--no-track"],
    ["run", "toy.yaml", "ease", "--memory", "1GB", "--curve", "0", "--no-track"],
    ["fit", "toy.yaml", "ease", "lam=3", "--out", "new-model", "--dtype", "float32"],
    ["recommend", "models/ease", "--user", "1", "-k", "3", "--out", "top.csv"],
    ["recommend", "models/ease", "--history", "new.csv", "-k", "3"],
    ["similar", "models/ials", "--item", "3", "-k", "2", "--out", "near.parquet"],
    ["data", "describe", "toy.yaml", "--plot", "toy.png"],
    ["data", "fetch", "toy.yaml", "./toy.yaml"],
    ["data", "clean"],
    ["evaluate", "toy.yaml", "lists.csv", "--name", "mine", "--cutoffs", "3,5", "--seconds", "2", "--no-track"],
    ["data", "export", "toy.yaml", "data.split.seed=2", "--split", "--format", "recbole", "--out", "parts"],
    ["data", "import", "raw.csv", "--name", "new", "--out", "new.yaml"],
    ["sweep", "toy-losses.yaml", "search.trials=1", "arms.0.params.lam=3", "--arms", "*", "--dry-run"],
    ["sweep", "status", "toy"],
    ["report", "toy-losses.yaml", "--format", "md", "--metrics", "ndcg@5"],
    ["compare", "run-toy-ease", "run-toy-popularity", "--metric", "ndcg@5", "--seed", "1"],
    ["methods", "ease"],
    ["study", "metric-inconsistency", "datasets=./toy.yaml", "list_lengths=20,40", "K=3", "--seed", "1", "--out", "findings"],
]


def a_card(rng: random.Random) -> Case:
    card = copy.deepcopy(rng.choice([CARD, CARD, BUILT_IN]))
    words = rng.choice([["data", "describe", "toy.yaml"], ["run", "toy.yaml", "ease", "lam=1", "--no-track"]])
    return Case(words, TOY | {"toy.yaml": harmed_yaml(rng, card)})


def an_experiment(rng: random.Random) -> Case:
    """An experiment file that is harmed, also as the base of another, or an experiment whose base is not."""
    trees = {"toy-losses.yaml": copy.deepcopy(EXPERIMENT)}
    if rng.random() < 0.4:
        trees = {"toy-losses.yaml": copy.deepcopy(CHILD), "base.yaml": copy.deepcopy(EXPERIMENT)}
    harmed = rng.choice([*trees])
    files = {name: yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode() for name, tree in trees.items()}
    more = rng.choice([[], ["--stand-in", "0.5"], ["--chosen"], ["--json"]])
    words = rng.choice([["sweep", "toy-losses.yaml", "--dry-run", *more], ["report", "toy-losses.yaml"]])
    return Case(words, TOY | files | {harmed: harmed_yaml(rng, trees[harmed])})


def data(rng: random.Random) -> Case:
    """A raw file of some format."""
    content, read, name, member = VALID[rng.choice([*VALID])]
    remote = {"file": name} | ({"member": member} if member else {})
    card = {"name": "toy", "source": {"files": {"all": remote}}, "read": read}
    words = rng.choice([["data", "describe", "toy.yaml"], ["run", "toy.yaml", "popularity", "--no-track"]])
    harmed = rng.choice([harmed_bytes, harmed_bytes, instead_of_file])(rng, content)
    return Case(words, {"toy.yaml": yaml.safe_dump(card).encode(), name: harmed})


def ids(rng: random.Random) -> Case:
    """A table of ids that is handed to a model."""
    content = rng.choice([b"user,item\n7,1\n7,2\n8,3\n", TABLE.encode(), b"user\n1\n2\n", b"item\n3\n"])
    words = ["recommend models/ease --history", "recommend models/ials --users", "similar models/ease --items"]
    name = rng.choice(["ids.csv", "ids.csv", "ids.parquet"])
    files = {name: rng.choice([harmed_bytes, instead_of_file])(rng, content)}
    return Case([*rng.choice(words).split(), name, "--out", "top.csv"], files, models=True)


def lists(rng: random.Random) -> Case:
    """Lists of another program."""
    name = rng.choice([*LISTS, "lists.parquet"])
    if name in LISTS:
        content = LISTS[name]
    else:
        user, item, rank = (list(column) for column in zip(*RANKED, strict=True))
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table({"user": user, "item": item, "rank": rank}), buffer)
        content = buffer.getvalue().to_pybytes()
    harmed = rng.choice([harmed_bytes, harmed_bytes, instead_of_file])(rng, content)
    more = rng.choice([[], ["--allow-missing"], ["--json"]])
    return Case(["evaluate", "toy.yaml", name, "--cutoffs", "3", "--no-track", *more], TOY | {name: harmed})


def a_result(rng: random.Random) -> Case:
    """A record, or what a sweep left."""
    records = {f"runs/run-toy-ease*/{name}" for name in ("record.json", "per_user.parquet")}
    sweeps = {
        f"sweeps/*/{name}" for name in ("sweep.json", "chosen.json", "comparisons.json", "records/run-toy-ease*/record.json")
    }
    place = rng.choice(sorted(records | sweeps))
    words = ["report", "report --out pages", "sweep status", "report toy --format json"]
    if place in records:
        words = [f"compare run-toy-ease run-toy-popularity --metric {name}" for name in ("ndcg@5", "recall@10")]

    def harm(root: Path) -> None:
        (path,) = (root / "results").glob(place)
        harm_file(rng, path)

    return Case(rng.choice(words).split(), TOY, results=True, harm=harm)


def arguments(rng: random.Random) -> Case:
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(1, len(words))
        word = words[at]
        how = rng.randrange(6)
        if how == 0:
            words[at] = word.partition("=")[0] + "=" + str(rng.choice(ARGUMENTS)) if "=" in word else str(rng.choice(ARGUMENTS))
        elif how == 1:
            words[at] = str(rng.choice(ARGUMENTS))
        elif how == 2:
            del words[at]
        elif how == 3:
            words.insert(at, rng.choice([word, str(rng.choice(ARGUMENTS))]))
        elif how == 4:
            other = rng.randrange(1, len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = harmed_text(rng, word)
        if len(words) == 1:
            words.append(str(rng.choice(ARGUMENTS)))
    # No argument holds a NUL, and none is taken for another command: those that serve never end.
    words = [words[0], *(word.replace("\0", "") for word in words[1:] if word not in ("serve", "ui", "demo"))]
    return Case(words, FILES, models=True, results=True)


def variables(rng: random.Random) -> Case:
    name = rng.choice(["DATA", "MIRROR", "OFFLINE", "RESULTS", "TRACKING_URI", "HOME", "HOEM"])
    values = [
        *WORDS,
        DEEP,
        "raw.csv",
        "raw.csv/below",
        "dangling",
        "loop",
        "sqlite:///",
        "ftp://x",
        "sqlite:////no/such/a.db",
        "2",
    ]
    words = rng.choice([["run", "toy.yaml", "popularity", "--no-track"], ["data", "list"], ["tracking", "status"], ["report"]])
    links = {"dangling": lambda path: path.symlink_to("nowhere"), "loop": lambda path: path.symlink_to("loop")}
    return Case(words, TOY | links, {f"RANKBENCH_{name}": rng.choice(values).replace("\0", "")})
