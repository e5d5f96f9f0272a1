"""All malformed inputs, by kind and number, and the workers that give them to the command line, each with a deadline.

`python tests/contracts/campaign.py` runs all cases, `... campaign.py names stores` those of two kinds, and
`... campaign.py names/17` one case.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from harm import put
from malformed import (
    COMMANDS,
    EXPERIMENT,
    FILES,
    TOY,
    Case,
    a_card,
    a_result,
    an_experiment,
    arguments,
    data,
    ids,
    lists,
    variables,
)  # fmt: skip
from malformed_folders import a_folder
from malformed_plugins import a_name, a_return
from malformed_stores import a_store

Number = tuple[str, int]
# Kind → how many cases the whole campaign has, what makes one from random numbers, and how many bytes of memory it may take
# beside those of a process with its imports.
KINDS: dict[str, tuple[int, Callable[[random.Random], Case], int]] = {
    "cards": (150, a_card, 10**8),
    "experiments": (300, an_experiment, 10**8),
    "data": (200, data, 10**8),
    "arguments": (100, arguments, 10**8),
    "results": (200, a_result, 10**8),
    "ids": (100, ids, 10**8),
    "lists": (150, lists, 10**8),
    "variables": (100, variables, 10**8),
    "stores": (250, a_store, 10**9),
    "folders": (300, a_folder, 10**9),
    "returns": (150, a_return, 10**9),
    "names": (300, a_name, 10**9),
}
SEED = 20261122
DEADLINE = 90.0  # s for one case: none takes more than a second on a machine that is not busy
START = 300.0  # s for a worker to import everything, and to fit the models that are harmed


def case(number: Number) -> Case:
    """The same case everywhere. Those of the kind "unharmed" are commands on files where nothing is wrong."""
    kind, n = number
    if kind == "unharmed":
        return Case(COMMANDS[n], FILES, models=True, results=True, codes=(0,))
    return KINDS[kind][1](random.Random(f"{SEED}/{kind}/{n}"))


def part(kind: str, count: int | None = None) -> list[Number]:
    """The cases of a kind, or so many of them, from all over it."""
    total = KINDS[kind][0]
    return [(kind, number) for number in range(0, total, total // count + 1 if count else 1)]


class Result(NamedTuple):
    """`broken`: what of the contract a case broke, in a sentence, or nothing. `memory`: bytes that it took."""

    broken: str
    memory: int


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
    root = base / "results" / "sweeps" / "toy-losses-00000000-20261122-000000-000000"
    shutil.copytree(base / "results" / "runs", root / "records")
    rows = []
    for path in (root / "records").glob("*/record.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"stage": "final", "arm": content["method"]}))
        rows.append({"dataset": "toy", "arm": content["method"], "search": None, "final": [content["id"]]})
    arms = [{"method": row["arm"], "params": {}} for row in rows]
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


def run_case(number: Number, base: Path, root: Path) -> Result:
    """What of the contract the case breaks, and its memory. The case lies in a folder of its own under `root`."""
    from rankbench.core.plugins import separate

    chosen = case(number)
    folder = Path(tempfile.mkdtemp(prefix=f"case-{number[0]}-{number[1]}-", dir=root))
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
        with separate(), memory_of() as taken:
            code, out, error = _captured(chosen.words, root)
        broken = list(_broken(chosen, code, out, error, before, folder))
        if set(root.iterdir()) != outside:
            broken.append("something was written outside of the folder")
        if max(taken) > (KINDS[number[0]][2] if number[0] in KINDS else 10**9):
            broken.append(f"took {max(taken) / 1e6:.0f} MB")
        return Result(f"{_name(number, chosen)}: {'; '.join(broken)}" if broken else "", max(taken))
    finally:
        os.chdir(root)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def memory_of() -> Iterator[list[int]]:
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


REMEMBERED = ("checksums.json", "methods.json")  # of raw files; of the methods, whose import takes seconds


def _files(folder: Path) -> set[Path]:
    """What a command may not leave behind when it fails. Locks and what is remembered may stay."""
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name not in REMEMBERED}


def _broken(chosen: Case, code: int | str, out: str, error: str, before: set[Path], folder: Path) -> Iterator[str]:
    if code not in chosen.codes:
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
    if out and "--json" in chosen.words:
        try:
            json.loads(out)
        except ValueError:
            yield f"stdout is no JSON: {out[:200]!r}"
    if code == 0 or isinstance(code, str):
        return
    if chosen.names not in error:
        yield f"the line does not name {chosen.names}: {error[:300]!r}"
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
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    root.mkdir(exist_ok=True)
    if not base.exists():
        make_base(base)
    connection.send("ready")
    while (number := connection.recv()) is not None:
        connection.send(run_case(number, base, root))


def _name(number: Number, chosen: Case) -> str:
    return f"{number[0]}/{number[1]}: {chosen}"


def campaign(
    numbers: list[Number], folder: Path, deadline: float = DEADLINE, tell: Callable[[str], Any] = lambda line: None
) -> tuple[list[str], dict[Number, Result]]:
    """A sentence for each case that breaks the contract, told as it is found, and the results of the cases that ended. The
    cases run one after another in a process of their own, which is killed, and replaced, when one of them hangs.
    """
    base, failures, results, todo = folder / "base", [], {}, list(reversed(numbers))

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
                if not (deadline and here.poll(deadline)):
                    told(f"{_name(number, case(number))}: no end within {deadline:.0f} s")
                    break
                results[number] = result = here.recv()
                if result.broken:
                    told(result.broken)
        except (EOFError, BrokenPipeError):
            worker.join()
            told(f"{_name(number, case(number))}: the process ended with {worker.exitcode}")
        finally:
            worker.kill()
            worker.join()
            here.close()
    return failures, results


if __name__ == "__main__":
    for word in sys.argv[1:] or KINDS:
        kind, _, number = word.partition("/")
        wanted, begun = [(kind, int(number))] if number else part(kind), time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            found, results = campaign(wanted, Path(scratch), tell=lambda line: print(line, flush=True))
        most, seconds = max(result.memory for result in results.values()), time.monotonic() - begun
        print(
            f"{word}: {len(found)} of {len(wanted)} break the contract; at most {most / 1e6:.0f} MB; {seconds:.0f} s",
            flush=True,
        )
