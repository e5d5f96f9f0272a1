"""Malformed inputs from a seeded generator, and the workers that give them to the command line, each with a deadline.

A case is a number: `case(17)` is the same command on the same files everywhere. `python tests/contracts/malformed.py 17` runs
one, and `python tests/contracts/malformed.py 0 1000` all of them.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "data" / "readers"))
from whole_files import VALID

MEMORY = 100_000_000  # bytes that a case may take, beside those of a process with its imports
DEADLINE = 90.0  # s for one case: none takes more than a second on a machine that is not busy
START = 300.0  # s for a worker to import everything, and to fit the models that are harmed
SEED = 20261122

LONG, DEEP, NUL = "x" * 300, "folder/" * 700, "a\0b"
WORDS = [
    "",
    " ",
    ".",
    "..",
    "../../up",
    "/",
    "~nobody/x",
    LONG,
    "é",
    "\x1b[31m",
    "\u202e",
    "a\nb",
    "=",
    "*",
    "&a",
    "true",
    "nan",
]
NUMBERS = [-1, 0, 1, 0.5, -0.5, 1.5, 2**31, 2**63 - 1, 2**64, -(2**63), 1e30, 1e308, float("nan"), float("inf"), -float("inf")]
VALUES = [None, True, False, *NUMBERS, *WORDS, NUL, "1", "80", [], {}, [[]], [None], {"a": 1}, [1, "a", None], {"": {}}]


class Result(NamedTuple):
    """`broken`: what of the contract a case broke, in a sentence, or nothing. `memory`: bytes that it took."""

    broken: str
    memory: int


@dataclass
class Case:
    """A command, what the environment says, and the files that lie in its folder: name → bytes, or a function of a path that
    makes something else of it. `models`, `results`: whether the fitted models and the records lie there, too. `good`: whether
    nothing was harmed, and the command must succeed.
    """

    words: list[str]
    files: dict[str, bytes | Callable[[Path], Any]]
    environment: dict[str, str] = field(default_factory=dict)
    models: bool = False
    results: bool = False
    harm: Callable[[Path], Any] | None = None
    good: bool = False

    def __str__(self) -> str:
        names = ", ".join(self.files)
        return f"{self.environment or ''} rankbench {' '.join(repr(word[:80]) for word in self.words)} [{names}]".strip()


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
TOY = {"raw.csv": TABLE.encode(), "toy.yaml": yaml.safe_dump(CARD, sort_keys=False).encode()}
FILES = TOY | {
    "toy-losses.yaml": yaml.safe_dump(EXPERIMENT, sort_keys=False).encode(),
    "new.csv": b"user,item\n77,1\n77,2\n",
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
    ["data", "import", "raw.csv", "--name", "new", "--out", "new.yaml"],
    ["sweep", "toy-losses.yaml", "search.trials=1", "arms.0.params.lam=3", "--arms", "*", "--dry-run"],
    ["sweep", "status", "toy"],
    ["report", "toy-losses.yaml", "--format", "md", "--metrics", "ndcg@5"],
    ["compare", "run-toy-ease", "run-toy-popularity", "--metric", "ndcg@5", "--seed", "1"],
    ["methods", "ease"],
    ["study", "metric-inconsistency", "datasets=./toy.yaml", "list_lengths=20,40", "K=3", "--seed", "1", "--out", "findings"],
]


def case(number: int) -> Case:
    """A harmed input; of a negative number a command that is not harmed: -1, -2, ... are COMMANDS[0], COMMANDS[1], ..."""
    if number < 0:
        return Case(COMMANDS[-1 - number], FILES, models=True, results=True, good=True)
    rng = random.Random(f"{SEED}/{number}")
    return KINDS[number % len(KINDS)](rng)


def a_card(rng: random.Random) -> Case:
    card = copy.deepcopy(rng.choice([CARD, CARD, BUILT_IN]))
    words = rng.choice([["data", "describe", "toy.yaml"], ["run", "toy.yaml", "ease", "lam=1", "--no-track"]])
    return Case(words, TOY | {"toy.yaml": harmed_yaml(rng, card)})


def an_experiment(rng: random.Random) -> Case:
    text = harmed_yaml(rng, copy.deepcopy(EXPERIMENT))
    more = rng.choice([[], ["--stand-in", "0.5"], ["--chosen"], ["--json"]])
    words = rng.choice([["sweep", "toy-losses.yaml", "--dry-run", *more], ["report", "toy-losses.yaml"]])
    return Case(words, TOY | {"toy-losses.yaml": text})


def data(rng: random.Random) -> Case:
    """A raw file of some format."""
    content, read, name, member = VALID[rng.choice([*VALID])]
    remote = {"file": name} | ({"member": member} if member else {})
    card = {"name": "toy", "source": {"files": {"all": remote}}, "read": read}
    return Case(
        rng.choice([["data", "describe", "toy.yaml"], ["run", "toy.yaml", "popularity", "--no-track"]]),
        {
            "toy.yaml": yaml.safe_dump(card).encode(),
            name: rng.choice([harmed_bytes, harmed_bytes, instead_of_file])(rng, content),
        },
    )


def ids(rng: random.Random) -> Case:
    """A table of ids that is handed to a model."""
    content = rng.choice([b"user,item\n7,1\n7,2\n8,3\n", TABLE.encode(), b"user\n1\n2\n", b"item\n3\n"])
    words = rng.choice(
        [
            ["recommend", "models/ease", "--history"],
            ["recommend", "models/ials", "--users"],
            ["similar", "models/ease", "--items"],
        ]
    )
    name = rng.choice(["ids.csv", "ids.csv", "ids.parquet"])
    return Case(
        [*words, name, "--out", "top.csv"], {name: rng.choice([harmed_bytes, instead_of_file])(rng, content)}, models=True
    )


def a_model(rng: random.Random) -> Case:
    folder = rng.choice(["models/ease", "models/ials", "models/popularity"])
    name = f"{folder}/{rng.choice(['model.json', 'model.json', 'arrays.safetensors'])}"
    words = rng.choice(
        [["recommend", folder, "--all", "-k", "3"], ["similar", folder, "--item", "3"], ["recommend", folder, "--user", "1"]]
    )
    return Case([*words, "--out", "top.csv"], TOY, models=True, harm=lambda root: harm_file(rng, root / name))


def a_record(rng: random.Random) -> Case:
    folder = rng.choice(["runs/run-toy-ease", "runs/run-toy-popularity"])
    name = rng.choice(["record.json", "record.json", "per_user.parquet"])
    words = ["compare", "run-toy-ease", "run-toy-popularity", "--metric", rng.choice(["ndcg@5", "recall@10"])]

    def harm(root: Path) -> None:
        (path,) = (root / "results").glob(f"{folder}*/{name}")
        harm_file(rng, path)

    return Case(words, TOY, results=True, harm=harm)


def a_sweep(rng: random.Random) -> Case:
    """What a sweep left."""
    names = ["sweep.json", "sweep.json", "chosen.json", "comparisons.json", "records/run-toy-ease*/record.json"]
    name = rng.choice(names)
    words = rng.choice([["report"], ["report", "--out", "pages"], ["sweep", "status"], ["report", "toy", "--format", "json"]])

    def harm(root: Path) -> None:
        (path,) = (root / "results" / "sweeps").glob(f"*/{name}")
        harm_file(rng, path)

    return Case(words, TOY, results=True, harm=harm)


def arguments(rng: random.Random) -> Case:
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(1, len(words))
        word = words[at]
        how = rng.randrange(6)
        if how == 0:
            words[at] = word.partition("=")[0] + "=" + a_word(rng) if "=" in word else a_word(rng)
        elif how == 1:
            words[at] = a_word(rng)
        elif how == 2:
            del words[at]
        elif how == 3:
            words.insert(at, rng.choice([word, a_word(rng)]))
        elif how == 4:
            other = rng.randrange(1, len(words))
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = harmed_text(rng, word)
        if len(words) == 1:
            words.append(a_word(rng))
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


KINDS = [a_card, an_experiment, data, arguments, a_model, a_record, ids, a_sweep, variables, data]


def a_word(rng: random.Random) -> str:
    """For the command line."""
    return str(
        rng.choice([*WORDS, *NUMBERS, "-k", "--out", "--json", "a=b", "lam=1", DEEP, "[" * 900, "{}", "lam=[1, 2]", "-", "--"])
    )


def harmed_yaml(rng: random.Random, content: Any) -> bytes:
    for _ in range(rng.choice([1, 1, 1, 2])):
        harm_tree(rng, content)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    how = rng.randrange(8)
    if how == 0:
        lines = text.splitlines()
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))  # most often a key that is given twice
        text = "\n".join(lines) + "\n"
    elif how == 1:
        text = harmed_text(rng, text)
    elif how == 2:
        return harmed_bytes(rng, text.encode())
    return text.encode(rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16"]) if how == 3 else "utf-8")


def harm_tree(rng: random.Random, tree: Any) -> None:
    """Change one place of nested dicts and lists."""
    places = list(_places(tree))
    node, key = rng.choice(places)
    value = node[key]
    how = rng.randrange(8)
    if how < 4:
        node[key] = copy.deepcopy(rng.choice(VALUES))
    elif how == 4:
        node[key] = rng.choice([[value], {"a": value}, [value, value], str(value), [[value]]])
    elif how == 5:
        del node[key]
    elif how == 6 and isinstance(node, dict):
        node[rng.choice([f"{key}s", str(key).upper(), "", LONG, 1, None, True])] = node.pop(key)
    else:
        other, there = rng.choice(places)
        node[key] = copy.deepcopy(other[there])


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def harmed_text(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return (
        text[:at]
        + rng.choice(["\t", "\0", "\ufeff", "'", '"', "{", "[", "&a ", "*a", "!!int ", "\n---\n", "\x1b", "%", ": ", "9" * 400])
        + text[at:]
    )


def harmed_bytes(rng: random.Random, content: bytes) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(content) + 1)
        how = rng.randrange(9)
        if how == 0:
            content = content[:at]
        elif how == 1 and content:
            at = min(at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        elif how == 2:
            content = content[:at] + rng.randbytes(rng.randrange(1, 40)) + content[at:]
        elif how == 3:
            content = content[:at] + content[at : at + rng.randrange(200)] + content[at:]
        elif how == 4:
            content = rng.choice([b"", b"\n", b"\0", b"\xef\xbb\xbf" + content, b"\xff\xfe" + content, 3 * content])
        elif how == 5:
            content = content[:at] + content[at + rng.randrange(1, 60) :]
        elif how == 6:
            wrong = [b"nan", b"-1", b"1e400", b"9" * 30, b"inf", b"", b"x", b'"', b"\r", b"1.5", b"\x1b[2J", b"\xc3"]
            parts = content.split(rng.choice([b",", b"\n", b" ", b":"]))
            separator = content[len(parts[0]) : len(parts[0]) + 1]
            parts[rng.randrange(len(parts))] = rng.choice(wrong)
            content = separator.join(parts)
        elif how == 7:
            lines = content.split(b"\n")
            rng.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = content.replace(rng.choice([b",", b"user", b"item", b"\n", b"1"]), rng.choice([b"", b";", b"\t", b"0"]))
    return content


def instead_of_file(rng: random.Random, content: bytes) -> bytes | Callable[[Path], Any]:
    """No file, or something that is none."""

    def forbidden(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0)  # root reads it all the same

    return rng.choice(
        [
            b"",
            lambda path: None,
            lambda path: path.mkdir(),
            lambda path: path.symlink_to("nowhere"),
            lambda path: path.symlink_to(path.name),
            lambda path: os.mkfifo(path),
            lambda path: path.symlink_to("/dev/zero"),
            forbidden,
        ]
    )


def harm_file(rng: random.Random, path: Path) -> None:
    """A file that is there: its JSON, its bytes, or the file as such."""
    content = path.read_bytes()
    how = rng.randrange(6)
    if how < 4 and path.suffix == ".json":
        tree = json.loads(content)
        for _ in range(rng.choice([1, 1, 2])):
            harm_tree(rng, tree)
        path.write_text(json.dumps(tree, default=str), encoding="utf-8")
        return
    path.unlink()
    put(path, instead_of_file(rng, content) if how == 4 else harmed_bytes(rng, content))


def put(path: Path, what: bytes | Callable[[Path], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(what) if isinstance(what, bytes) else what(path)


def make_base(base: Path) -> None:
    """Models and records to harm: fitted and measured by the same command line, in this process."""
    from rankbench.cli import _main
    from rankbench.schema.experiment import ExperimentSpec

    base.mkdir()
    _enter(base, {})
    for name, content in TOY.items():
        put(base / name, content)
    small = {"ease": ["lam=1"], "ials": ["embedding_dim=3", "iterations=2"], "popularity": []}
    for method, params in small.items():
        assert _main(["fit", "toy.yaml", method, *params, "--out", f"models/{method}"]) == 0
    for method in ("ease", "popularity"):
        words = ["run", "toy.yaml", method, *small[method], "--cutoffs", "5,10", "--metrics", "recall,ndcg", "--no-track"]
        assert _main(words) == 0
    records = {}
    for path in (base / "results" / "runs").glob("*/record.json"):
        content = json.loads(path.read_text())
        folder = path.parent.with_name(content["id"])
        records[content["method"]] = folder.name
    root = base / "results" / "sweeps" / "toy-losses-00000000-20261122-000000-000000"
    rows = []
    for method, name in records.items():
        shutil.copytree(base / "results" / "runs" / name, root / "records" / name)
        path = root / "records" / name / "record.json"
        content = json.loads(path.read_text()) | {"stage": "final", "arm": method}
        path.write_text(json.dumps(content))
        rows.append({"dataset": "toy", "arm": method, "search": None, "final": [name]})
    arms = [{"method": method, "params": {}} for method in records]
    spec = ExperimentSpec.model_validate(EXPERIMENT | {"datasets": ["./toy.yaml"], "arms": arms}).model_dump(mode="json")
    about = {"id": root.name, "experiment": spec, "cards": [], "changes": [], "notes": ["a note"], "settings": 2, "fits": 2}
    about["started_at"] = "2026-11-22T00:00:00+00:00"
    (root / "sweep.json").write_text(json.dumps(about))
    (root / "chosen.json").write_text(json.dumps({"rows": rows, "failed": [], "finished_at": "2026-11-22T00:01:00+00:00"}))
    (root / "comparisons.json").write_text(json.dumps({"metrics": ["ndcg@5"], "models": [], "comparisons": []}))


def _enter(folder: Path, environment: dict[str, str]) -> None:
    os.chdir(folder)
    for name in list(os.environ):
        if name.startswith("RANKBENCH_") or name == "RAY_ADDRESS":
            del os.environ[name]
    os.environ |= {
        "RANKBENCH_DATA": str(folder / "data"),
        "RANKBENCH_RESULTS": str(folder / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    os.environ |= environment


def run_case(number: int, base: Path, root: Path) -> Result:
    """What of the contract the case breaks, and its memory. The case lies in a folder of its own under `root`."""
    chosen = case(number)
    folder = Path(tempfile.mkdtemp(prefix=f"case-{number}-", dir=root))
    try:
        for name, content in chosen.files.items():
            put(folder / name, content)
        if chosen.models:
            shutil.copytree(base / "models", folder / "models")
        if chosen.results:
            shutil.copytree(base / "results", folder / "results")
        if chosen.harm:
            chosen.harm(folder)
        _enter(folder, chosen.environment)
        before, outside = _files(folder), set(root.iterdir())
        with _memory() as taken:
            code, out, error = _captured(chosen.words, root)
        broken = list(_broken(chosen, code, out, error, before, folder))
        if set(root.iterdir()) != outside:
            broken.append("something was written outside of the folder")
        if max(taken) > MEMORY:
            broken.append(f"took {max(taken) / 1e6:.0f} MB")
        return Result(f"case {number}: {chosen}: {'; '.join(broken)}" if broken else "", max(taken))
    finally:
        os.chdir(root)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _memory() -> Iterator[list[int]]:
    """A list whose maximum, after the block, is the bytes by which this process grew in it at its peak.

    A command that fits sets the system's count back, to measure the fit alone. What was counted until then is kept.
    """
    from rankbench.experiment import run
    from rankbench.tracking.environment import peak_memory, reset_peak_memory

    taken: list[int] = []

    def count() -> None:
        taken.append(peak_memory() - start)
        reset_peak_memory()

    reset_peak_memory()
    start, run.reset_peak_memory = peak_memory(), count
    try:
        yield taken
    finally:
        run.reset_peak_memory = reset_peak_memory
        count()


def _captured(words: list[str], root: Path) -> tuple[int | str, str, str]:
    """Exit code, or the name of an exception, and what the whole process wrote meanwhile, compiled libraries included."""
    import traceback

    from rankbench.cli import _main

    kept = [os.dup(1), os.dup(2)]
    files = [(root.parent / f"{root.name}.{number}").open("w+b") for number in (1, 2)]
    try:
        for number, file in enumerate(files, start=1):
            os.dup2(file.fileno(), number)
        try:
            code: int | str = _main(words)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            ours = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "rankbench" in f.filename), place)
            code = f"{type(error).__name__}: {str(error)[:200]} at {Path(ours.filename).name}:{ours.lineno}"
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for number, old in enumerate(kept, start=1):
            os.dup2(old, number)
            os.close(old)
    texts = []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
        file.close()
    return code, *texts


def _files(folder: Path) -> set[Path]:
    """What a command may not leave behind when it fails. Locks and remembered checksums may stay."""
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != "checksums.json"}


def _broken(chosen: Case, code: int | str, out: str, error: str, before: set[Path], folder: Path) -> Iterator[str]:
    if code not in ((0,) if chosen.good else (0, 2, 3, 5)):
        yield f"ended with {code}, {error[:300]!r}"
    if "Traceback" in error + out:
        yield f"a traceback: {error[-300:]}"
    new = _files(folder) - before
    whole = {path.parent for path in new if path.name == "manifest.json"}
    if half := [path for path in folder.rglob(".tmp-*")]:
        yield f"half-written: {half}"
    for path in new:
        if path.suffix == ".json":
            try:
                json.loads(path.read_bytes())
            except ValueError:
                yield f"no whole JSON: {path}"
    if code == 0 or isinstance(code, str):
        return
    if not (error.startswith("error: ") and error.count("\n") == 1 and error.rstrip("\n").isprintable() and len(error) < 3000):
        yield f"stderr is {error[:500]!r}"
    if out and "--json" not in chosen.words:
        yield f"stdout is {out[:200]!r}"
    # A dataset that was prepared whole may stay.
    if left := [str(path.relative_to(folder)) for path in new if path.parent not in whole]:
        yield f"left behind: {left[:5]}"


def _work(connection, base: Path, root: Path) -> None:
    import resource
    import warnings

    # What a command imports late is no memory of the case that is the first to need it.
    import matplotlib.pyplot  # noqa: F401

    import rankbench.training.methods  # noqa: F401

    # A case that takes all memory must fail, not the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    root.mkdir(exist_ok=True)
    if not base.exists():
        make_base(base)
    connection.send("ready")
    while (number := connection.recv()) is not None:
        connection.send(run_case(number, base, root))


def campaign(
    numbers: list[int], folder: Path, deadline: float = DEADLINE, tell: Callable[[str], Any] = lambda line: None
) -> tuple[list[str], dict[int, int]]:
    """A sentence for each case that breaks the contract, told as it is found, and the memory that each case took. The cases run
    one after another in a process of their own, which is killed, and replaced, when one of them hangs.
    """
    base, failures, memory, todo = folder / "base", [], {}, list(reversed(numbers))

    def told(line: str) -> None:
        failures.append(line)
        tell(line)

    while todo:
        here, there = multiprocessing.get_context("spawn").Pipe()
        worker = multiprocessing.get_context("spawn").Process(
            target=_work, args=(there, base, folder / f"cases-{len(todo)}"), daemon=True
        )
        worker.start()
        there.close()
        try:
            if not (here.poll(START) and here.recv() == "ready"):
                raise RuntimeError("the worker did not start")
            while todo:
                number = todo.pop()
                here.send(number)
                if not here.poll(deadline):
                    told(f"case {number}: {case(number)}: no end within {deadline:.0f} s")
                    break
                result = here.recv()
                memory[number] = result.memory
                if result.broken:
                    told(result.broken)
        except (EOFError, BrokenPipeError):
            worker.join()
            told(f"case {number}: {case(number)}: the process ended with {worker.exitcode}")
        finally:
            worker.kill()
            worker.join()
            here.close()
    return failures, memory


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    wanted = given if len(given) == 1 else list(range(*given))
    with tempfile.TemporaryDirectory() as scratch:
        found, took = campaign(wanted, Path(scratch), tell=lambda line: print(line, flush=True))
    print(f"{len(found)} of {len(wanted)} cases break the contract")
    most = sorted(took, key=lambda number: -took[number])[:10]
    print("bytes of the largest cases:", {number: took[number] for number in most})
