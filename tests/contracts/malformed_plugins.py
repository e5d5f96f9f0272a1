"""Plugins that return what they should not, and names that nothing may have."""

# ruff: noqa: E501  a value a line would be longer still

from __future__ import annotations

import copy
import random

import yaml
from malformed import CARD, EXPERIMENT, TOY, Case

# Every plugin begins so, and ends with what happens before something is returned in place of `good`.
START = """
import sys, numpy as np, torch, pyarrow as pa
from dataclasses import dataclass
from rankbench.core.params import Params, Range, param

@dataclass(frozen=True)
class Mine(Params):
    margin: float = param(1.0, "margin", Range(0.1, 2), gt=0)
"""
LOSS = """
from rankbench.losses.spec import loss

@loss("given", Mine, similarity="dot", title="Mine", source="here")
def given(s, p):
    good = (p.margin - s.pos[:, None] + s.neg).clamp(min=0).mean(dim=1)
"""
METRIC = """
from rankbench.evaluation.metrics import metric

@metric
def given(hits, n_targets):
    "hits / k"
    good = hits.mean(axis=1)
"""
PROTOCOL = """
from rankbench.data.protocols.spec import TEST, TRAIN, VALID, SplitSpec, protocol

@protocol("given", SplitSpec)
def given(data, spec):
    good = np.array([TRAIN, TRAIN, TRAIN, VALID, TEST])[np.arange(len(data.user)) % 5]
"""
READER = """
from rankbench.data.readers import reads

@reads("given", example=b"1-2")
def given(raw):
    pairs = [(u, i) for u in range(12) for i in range(14) if (u * i) % 3 != 1]
    good = pa.table({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]})
"""
ENCODER = """
from rankbench.models.spec import EmbeddingModel, model

class Module(EmbeddingModel):
    def forward(self):
        return vectors(self)

@model("given", Mine, title="Mine", source="here")
def given(X, p, users, items, generator):
    return Module(users, items)

def vectors(self):
    good = self.users, self.items
"""
SOLVER = """
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import FactorRecommender, LinearRecommender, LowRankRecommender

@direct("given", Mine, title="Mine", source="here")
def given(X, p, seed):
    V = np.ones((X.shape[1], 2), dtype=np.float32)
    good = LowRankRecommender(V, V, np.zeros(len(V), dtype=np.float32))
"""
ANYTHING = [
    "None", "1", "1.5", "True", "1j", "float('nan')", "'text'", "b'bytes'", "[]", "{}", "()", "object()", "lambda: 1", "[None]",
    "np.float32(1)", "np.zeros(3)", "np.zeros((2, 3))", "np.array(['a'])", "np.zeros(0)", "torch.zeros(3)", "torch.zeros(0)",
    "(x for x in [1])", "type", "NotImplemented", "...", "range(3)", "[[1], [2, 3]]",
]  # fmt: skip
LOSSES = [
    "good.mean()", "good.sum()", "good.detach()", "good.long()", "good > 0", "good.to(torch.complex64)", "good[: len(good) // 2]",
    "good[:1]", "good[:, None]", "good[None]", "torch.cat([good, good])", "good * float('nan')", "good / 0", "-good / 0", "good.to('meta')",
    "good.detach().numpy()", "good.tolist()", "good.half().detach()", "torch.zeros(len(good))", "good.to_sparse()", "(good, good)",
    "good.expand(3, -1)", "torch.empty(0)",
]  # fmt: skip
ARRAYS = [
    "good[: len(good) // 2]", "good[:, None]", "good * np.nan", "good.astype(complex)", "good.astype(str)", "good.astype(object)",
    "np.concatenate([good, good])", "good.mean()", "-np.inf * (good + 1)", "torch.as_tensor(good)[:1]", "np.full(len(good), None)",
]  # fmt: skip
LABELS = ["good + 100", "good - 100", "good * 0", "good * 0 + 2", "good / 2", "good.astype(bool)", "good * 0 + 5"]
TABLES = [
    "good", "[good['user']]", "[good.to_pandas()]", "[good.rename_columns(['user', 'it'])]", "[good.slice(0, 0)]", "[good, 7]", "[None, good]",
    "[good.append_column('user', good['user'])]", "[pa.table({'user': [1.5], 'item': [2.5]})]", "[pa.table({'user': [1, None], 'item': [1, 2]})]",
    "[pa.table({'user': [[1]], 'item': [[2]]})]", "[pa.table({'user': [-1], 'item': [2]})]", "[good, pa.table({'user': ['a'], 'item': ['b']})]",
    "[pa.table({'user': [True], 'item': [False]})]", "[pa.table({'user': [2**62], 'item': [2**62]})]", "iter([])", "[pa.array([1])]",
]  # fmt: skip
PAIRS = [
    "self.users", "(self.users,)", "(self.users, self.items, self.items)", "(self.users.detach(), self.items)", "(self.users[1:], self.items)",
    "(self.users, self.items[1:])", "(self.users[:, 1:], self.items)", "(self.users.T, self.items.T)", "(self.users * float('nan'), self.items)",
    "(self.items, self.users)", "(self.users.long(), self.items.long())", "(self.users.to(torch.complex64), self.items)", "(None, None)",
    "(self.users.detach().numpy(), self.items.detach().numpy())", "(self.users / 0, self.items)", "(self.users.to('meta'), self.items)",
]  # fmt: skip
MODELS = [
    "V", "LowRankRecommender", "LowRankRecommender(V, V, None)", "LowRankRecommender(V * np.nan, V, np.zeros(len(V)))",
    "LowRankRecommender(V[1:], V[1:], np.zeros(len(V) - 1))", "LowRankRecommender(None, None, None)", "LinearRecommender(V, V, V)",
    "LowRankRecommender(V.astype(complex), V, np.zeros(len(V)))", "LowRankRecommender(V.astype(str), V, V)", "FactorRecommender(V[:1], V)",
    "FactorRecommender(V, V[:1])", "LowRankRecommender(V.tolist(), V.tolist(), [0.0] * len(V))", "LowRankRecommender(V, V[:, :1], np.zeros(len(V)))",
    "LowRankRecommender(torch.ones(3, 2), V, V)", "(good, good)",
]  # fmt: skip
# What happens before anything is returned. The words of an exit belong to the plugin, not to the command.
EXITS = ["sys.exit()", "sys.exit(0)", "sys.exit(7)", "sys.exit('done')", "raise SystemExit(None)"]
PRINTS = ["print('{not json')", "sys.stdout.write('[')"]
KINDS = {
    "loss": (LOSS, LOSSES, ["given", "epochs=1"]),
    "metric": (METRIC, ARRAYS, ["popularity", "--metrics", "given@5"]),
    "protocol": (PROTOCOL, ARRAYS + LABELS, ["popularity", "data.split={protocol: given}"]),
    "reader": (READER, TABLES, ["popularity", "data.read={format: given}", "data.prepare=[]"]),
    "encoder": (ENCODER, PAIRS, ["bpr", "model=given", "epochs=1"]),
    "solver": (SOLVER, MODELS, ["given"]),
}
BAD_NAMES = [
    "", " ", ".", "..", "../../x", "/x", "a/b", "a\\b", "<b>x</b>", "<script>alert(1)</script>", "a=b", "ev*l", "e?l", "[ab]", "family:x", "!x",
    "a,b", "a b", "a\tb", "a\nb", "a\0b", "a\x1b[31mb", "x" * 10_000, "x" * 300, "\u202eabc", "\u05d0\u05d1", "\u0430b", "e\u0301", "\uff45ase",
    "\u200bease", "a\ud800b", "-x", "--help", "$(id)", "`id`", "a|b", "a\"b", "a'b", "%s", "{x}", "~x", "a;b", "&amp;", "#x", "@x", "x@5", "\U0001f600",
]  # fmt: skip
# Where a word of the command line is a name.
WORDS = [
    "run toy.yaml {} --no-track", "fit toy.yaml {} --out new-model", "run {} popularity --no-track", "run toy.yaml bpr model={} --no-track",
    "run toy.yaml popularity data.name={} --no-track", "run toy.yaml popularity data.split.protocol={} --no-track",
    "run toy.yaml popularity --metrics {} --no-track", "leaderboard --methods {} --dry-run --no-track",
    "leaderboard --datasets {} --dry-run --no-track", "sweep toy-losses.yaml --arms {} --dry-run", "methods {}", "study {}",
    "data import raw.csv --name {} --out new.yaml",
]  # fmt: skip


def _written(kind: str, before: str = "pass", value: str = "good", name: str = "given") -> bytes:
    returned = "[good]" if (kind, value) == ("reader", "good") else value
    text = f"{START}{KINDS[kind][0]}    {before}\n    return {returned}\n"
    return text.replace('"given"', ascii(name)).encode()


def a_return(rng: random.Random) -> Case:
    kind = rng.choice([*KINDS, "loss", "loss", "metric"])
    _, special, words = KINDS[kind]
    before, value = "pass", rng.choice(rng.choice([special, special, ANYTHING]))
    codes = (2, 3) if kind == "loss" else (0, 2, 3)  # of the others some are read as numbers, and some are harmless
    if rng.randrange(6) == 0:
        before, value = rng.choice(EXITS + PRINTS), "good"
        codes = (2, 3) if before in EXITS else (0,)
    words = ["run", "toy.yaml", *words, "--plugin", "mine.py", "--no-track", *rng.choice([["--json"], []])]
    return Case(words, TOY | {"mine.py": _written(kind, before, value)}, codes=codes, about=f"{before}; {value}")


def a_name(rng: random.Random) -> Case:
    name, where = rng.choice(BAD_NAMES), rng.choice(["plugin", "plugin", "card", "arm", "word", "word"])
    about = repr(name)[:80]
    if where == "plugin":
        kind = rng.choice([each for each in KINDS if each != "metric"])  # a metric is called as its function
        words = rng.choice([["run", "toy.yaml", "popularity", "--no-track"], ["methods"], ["data", "describe", "toy.yaml"]])
        files = TOY | {"mine.py": _written(kind, name=name)}
        return Case([*words, "--plugin", "mine.py"], files, codes=(2,), names="mine.py", about=about)
    if where == "card":
        words = rng.choice([["run", "toy.yaml", "popularity", "--no-track"], ["data", "describe", "toy.yaml"]])
        return Case(words, TOY | {"toy.yaml": yaml.safe_dump(CARD | {"name": name}).encode()}, codes=(2,), names="toy.yaml")
    experiment, key = copy.deepcopy(EXPERIMENT), rng.choice(["name", "name", "method"])
    if where == "arm":
        rng.choice(experiment["arms"])[key] = name
    files = TOY | {"toy-losses.yaml": yaml.safe_dump(experiment).encode()}
    if where == "arm":
        # The label of a row may be any short text of one line without markup and patterns.
        label = key == "name" and name.isprintable() and 0 < len(name) <= 64 and not {*name} & {*r"<>&/\|`*?[]"}
        return Case(["sweep", "toy-losses.yaml", "--dry-run"], files, codes=(0, 2) if label else (2,), about=about)
    word = name.replace("\0", "").replace("\ud800", "")
    return Case([each.format(word) for each in rng.choice(WORDS).split()], files, codes=(0, 2))
