"""The commands that write, a class for each: what it needs, its words, what of it is finished, and what holds once it was run
again after a fault. `test_writers.py` brings the faults.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from commands import TOUCHES_OF_A_LINE, Death, Ended, Home

from rankbench.experiment.fitted_model import load
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"
ALONE = "--no-track"


def sizes(users: int, items: int, each: int) -> tuple[str, ...]:
    return tuple(f"data.source.generator.{of}" for of in (f"users={users}", f"items={items}", f"interactions_per_user={each}"))


TINY, SMALL = sizes(80, 60, 10), sizes(300, 200, 20)
IALS = ("synthetic", "ials", "embedding_dim=8", "iterations=4", *TINY)
LARGER_IALS = ("synthetic", "ials", "embedding_dim=32", "iterations=4", *SMALL)


class Writer:
    """A command that is run again and again in `home`; `rng` draws what varies between the times."""

    again: tuple[tuple[str, ...], ...] = ((), ("--resume",))  # what the command after a fault may say in addition
    forgets = 0.5  # probability with which the result of the time before is removed

    def __init__(self, home: Home, rng: random.Random):
        self.home, self.rng = home, rng

    def prepare(self) -> None:
        """Make what the command needs, and run it once where nothing goes wrong."""

    def words(self, number: int) -> tuple[str, ...]:
        """Return the command of a time."""
        raise NotImplementedError  # abstract: every writer has its own command

    def before(self, number: int) -> tuple[str, ...]:
        """Remove or keep what earlier times left. Returns what the command says in addition."""
        return ()

    def finished(self) -> dict[Hashable, Any]:
        """Return what no fault may change or lose."""
        return self.home.records()

    def death(self, number: int) -> Death:
        """Return where the command of a time dies."""
        return Death.drawn(self.rng, self.touches)

    def is_dead(self, before: dict[Hashable, Any], after: dict[Hashable, Any]) -> None:
        """Check what a killed command left, before it is run again."""

    def refused(self, ended: Ended) -> bool:
        """Return whether the disk was too full for the command, which says so in one line."""
        assert ended.code in (0, 5), ended
        lines = ended.err.splitlines()
        without = [line for line in lines if "the fit goes on without a checkpoint" in line]
        assert len(without) <= 1 and len(lines) - len(without) == (ended.code != 0), ended.err
        assert all("no space left on the device" in line for line in lines), ended.err
        return bool(lines)

    def check(self, number: int, again: Ended) -> None:
        """Check what holds once the command was run again."""
        assert again.code == 0, (number, again.err)

    def finish(self) -> None:
        """Check what holds at the end."""

    def run_calmly(self, *words: str) -> Ended:
        ended = self.home.run(*words)
        assert ended.code == 0, ended.err
        self.touches = ended.touches
        return ended


class Run(Writer):
    """`run`, beside the record of another run, with and without an earlier record of its own."""

    setting: tuple[str, ...] = (*IALS, ALONE)
    address: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def prepare(self) -> None:
        self.run_calmly("run", "synthetic", "ease", "lam=3", *TINY, ALONE)
        calm = self.run_calmly("run", *self.setting, *self.address, "--json")
        self.metrics, self.target = calm.json["metrics"], Path(calm.json["folder"]) / "record.json"

    def words(self, number: int) -> tuple[str, ...]:
        return ("run", *self.setting, *self.address, "--json")

    def before(self, number: int) -> tuple[str, ...]:
        if self.rng.random() < self.forgets and self.target.exists():
            shutil.rmtree(self.target.parent)
        self.more = self.rng.choice([(), ("--resume",), ("--fresh",)])
        return self.more

    def finished(self) -> dict[Hashable, Any]:
        # Its own record is replaced where that is asked for, and is whole all the same.
        return {path: None if path == self.target and self.more else it for path, it in self.home.records().items()}

    def check(self, number: int, again: Ended) -> None:
        super().check(number, again)
        assert again.json["metrics"] == self.metrics, number


class TrackedRun(Run):
    """`run`, with messages for MLflow. What cannot be written of them is a warning, and later runs are told."""

    setting = IALS

    def refused(self, ended: Ended) -> bool:
        assert ended.code == 0, ended.err
        assert ended.err == "" or "results are complete on disk" in ended.err, ended.err
        return True

    def finish(self) -> None:
        # A busy machine may not have sent all of them yet.
        last, sync = self.home.run(*self.words(0), "--fresh"), self.home.run("tracking", "sync")
        assert (last.code, sync.code) == (0, 0), last.err + sync.err
        assert not [*(self.home.results / "spool").glob("*.json")]


class LargerRun(Run):
    """`run` with checkpoints of some pages."""

    setting = (*LARGER_IALS, ALONE)


class RunByTiles(Run):
    """A closed form that does not fit into --memory: the numbers of a run that nobody killed."""

    def prepare(self) -> None:
        words = ("synthetic", "ease", "lam=30", *sizes(1000, 4000, 60), ALONE)
        # The least that it would do with is said in the refusal; the matrix takes 97 MB. The first run prepares the data, which
        # takes as much.
        _, refusal = (self.home.run("run", *words, "--memory", "1MB").err for _ in range(2))
        least = int(re.search(r"allow (\d+) MB", refusal)[1])
        self.setting = (*words, "--memory", f"{least + 40}MB")
        super().prepare()
        assert json.loads(self.target.read_text())["tiles"]


class RunOnACluster(Run):
    """`run --address` on two nodes."""

    def prepare(self) -> None:
        self.nodes = subprocess.Popen(
            [sys.executable, str(NODES), "--nodes", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        about = json.loads(self.nodes.stdout.readline())
        self.home.environment |= about["environment"]
        self.address = ("--address", about["address"])
        super().prepare()


class Fit(Writer):
    """`fit --out`, a folder of its own each time: factors of the same bits."""

    setting = IALS

    def prepare(self) -> None:
        self.run_calmly("fit", *self.setting, "--out", "calm")
        self.expected = load(self.home.folder / "calm").recommender

    def words(self, number: int) -> tuple[str, ...]:
        return ("fit", *self.setting, "--out", str(self.home.results / f"model-{number}"))

    def finished(self) -> dict[Hashable, Any]:
        return {path: path.read_bytes() for path in self.home.results.glob("model-*[0-9]/*")}

    def check(self, number: int, again: Ended) -> None:
        assert again.code == (2 if "already exists" in again.err else 0), (number, again.err)
        model = load(self.home.results / f"model-{number}").recommender
        np.testing.assert_array_equal(model.U, self.expected.U)
        np.testing.assert_array_equal(model.V, self.expected.V)


class LargerFit(Fit):
    setting = LARGER_IALS


class Preparation(Writer):
    """`data describe` of raw data that are prepared: the same answer."""

    again = ((),)

    def prepare(self) -> None:
        pairs = random.Random(0).sample([(user, item) for user in range(60) for item in range(40)], k=1000)
        (self.home.folder / "raw.csv").write_text("user,item\n" + "".join(f"u{user},{item}\n" for user, item in pairs))
        card = {"name": "shop", "source": {"file": "raw.csv"}, "prepare": [{"k_core": 2}]}
        (self.home.folder / "shop.yaml").write_text(yaml.safe_dump(card))
        self.expected = self.run_calmly(*self.words(0)).out

    def words(self, number: int) -> tuple[str, ...]:
        return ("data", "describe", "./shop.yaml", "--json")

    def before(self, number: int) -> tuple[str, ...]:
        if self.rng.random() < self.forgets:
            empty(self.home.data)
        return ()

    def check(self, number: int, again: Ended) -> None:
        assert (again.code, again.out) == (0, self.expected), (number, again.err)
        assert not [*(self.home.data / "prepared").glob(".tmp-*")], number


class Export(Writer):
    """`data export --split`, a folder of its own each time: the same bytes."""

    again = ((),)

    def prepare(self) -> None:
        self.run_calmly(*self.words(0))
        self.expected = self.content(0)

    def words(self, number: int) -> tuple[str, ...]:
        return ("data", "export", "synthetic", *TINY, "--split", "--out", str(self.home.results / f"export-{number}"))

    def content(self, number: int) -> dict[str, bytes]:
        folder = self.home.results / f"export-{number}"
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def finished(self) -> dict[Hashable, Any]:
        return {path: path.read_bytes() for path in self.home.results.glob("export-*[0-9]/*")}

    def check(self, number: int, again: Ended) -> None:
        assert again.code == (2 if "already exists" in again.err else 0), (number, again.err)
        assert self.content(number) == self.expected


class Sweep(Writer):
    """`sweep`, which goes on with --resume from what was finished: the same table."""

    text = """
name: faulty
datasets:
  - {name: synthetic, source: {generator: {users: 80, items: 60, interactions_per_user: 10}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [3, 30]}}}
  - {method: ials, params: {embedding_dim: 8, iterations: 3, lam: {grid: [0.003, 0.01]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""
    again = ((),)  # its words say whether there is something to resume
    touches = 60  # of the part in which a driver that nobody watched may die

    def prepare(self) -> None:
        (self.home.folder / "faulty.yaml").write_text(self.text)
        self.expected = None

    def expect(self) -> None:
        """Take the table of a sweep that nobody disturbs as the one to be expected, and its length for when a driver dies."""
        self.run_calmly("sweep", "faulty.yaml")
        self.expected = self.table()
        empty(self.home.results)

    def words(self, number: int) -> tuple[str, ...]:
        # A driver that died before sweep.json was there has begun no sweep, and the next one takes a folder of its own.
        return ("sweep", "faulty.yaml", *["--resume"] * any(self.home.results.glob("sweeps/*/sweep.json")))

    def table(self) -> dict[str, Any]:
        (path,) = self.home.results.glob("sweeps/*/report/table.json")
        return {row["model"]: (row["params"], row["metrics"]) for row in json.loads(path.read_text())["rows"]}

    def is_dead(self, before: dict[Hashable, Any], after: dict[Hashable, Any]) -> None:
        self.home.age()

    def refused(self, ended: Ended) -> bool:
        assert ended.code in (0, 4, 5), ended
        assert "Traceback" not in ended.err and ended.err.count("error: ") == (ended.code != 0), ended.err
        self.home.require_no_processes()
        self.home.age()
        return ended.code != 0

    def check(self, number: int, again: Ended) -> None:
        super().check(number, again)
        table = self.table()
        assert len(table) == 3 and self.expected in (None, table), number
        assert not self.home.leftovers(), number
        empty(self.home.results)


class Store(Writer):
    """A command that stores a line for each entry. It dies after one or two lines, every other time while it writes the next
    one; what a strict reading finds stays.
    """

    card = "name: {}\nsource: {{generator: {{users: 80, items: 60, interactions_per_user: 10, seed: {}}}}}\n"
    ending = ".entries.jsonl"
    again = ()  # the next command, which is killed again, goes on

    def prepare(self) -> None:
        self.scratch = self.writing = 0
        self.store = self.home.folder / "store"
        for number in range(self.n_cards):
            self.put("datasets", f"tiny-{number}", self.card.format(f"tiny-{number}", number))

    def put(self, kind: str, name: str, text: str) -> None:
        (self.home.folder / kind).mkdir(exist_ok=True)
        (self.home.folder / kind / f"{name}.yaml").write_text(text)

    def words(self, number: int) -> tuple[str, ...]:
        return (*self.command, "--json", "--store", str(self.store))

    def finished(self) -> dict[Hashable, Any]:
        self.entries()
        lines = [(path.name, line) for path in self.store.glob("[!.]*.jsonl") for line in path.read_text().splitlines()]
        return dict.fromkeys(lines)

    def death(self, number: int) -> Death:
        self.stored, self.in_a_line = self.rng.randint(1, 2), number % 2 == 0
        if self.in_a_line:
            return Death(self.stored * TOUCHES_OF_A_LINE + self.rng.choice([2, 3]), lines=self.ending)
        return Death(self.stored * TOUCHES_OF_A_LINE, self.rng.uniform(0, 1), self.ending)

    def is_dead(self, before: dict[Hashable, Any], after: dict[Hashable, Any]) -> None:
        # The last touch of a line comes after its rename, and a death while the next one is written before that.
        assert len(after) - len(before) >= self.stored, (len(before), len(after), self.stored)
        # Nothing is aged here: a command that removed the scratch of the one before would touch more than its own lines.
        left = len([*self.store.glob(f".tmp-*{self.ending}")])
        assert left > self.scratch or not self.in_a_line
        self.writing, self.scratch = self.writing + (left > self.scratch), left

    def finish(self) -> None:
        assert len({*self.entries()}) == len(self.entries()) == self.n_entries
        assert not [*self.store.glob(".tmp-*")]

    def entries(self) -> list[Hashable]:
        """Return all entries that are stored."""
        raise NotImplementedError  # abstract: every store has its own


class LeaderboardWriters(Store):
    methods = ("popularity", "random", "ease", "ials")
    n_cards = 21

    @property
    def command(self) -> tuple[str, ...]:
        datasets = ",".join(f"tiny-{number}" for number in range(self.n_cards))  # what is made up is left out unless named
        words = ("leaderboard", "--methods", ",".join(self.methods), "--datasets", datasets)
        return (*words, "--budget", "1s", ALONE)

    @property
    def n_entries(self) -> int:
        return self.n_cards * len(self.methods)

    def entries(self) -> list[Hashable]:
        return [(each.dataset, each.entrant) for each in Leaderboard(self.store).all(Result)]

    def n_done(self, about: dict[str, Any]) -> int:
        """Return how many entries a command ran, by its JSON."""
        return len(about["done"])


class Reproduction(Store):
    table = """\
name: toy-table1
published: {{paper: Toy, table: 1, recall: recall}}
datasets: [tiny-0]
arms:
  - {{name: Random, method: random, params: {{}}, published: {{tiny-0: {{recall@20: 0.2}}}}}}
metrics: [recall]
cutoffs: [20]
final: {{seeds: {}}}
"""
    ending = ".fits.jsonl"
    n_cards = 1
    n_entries = 126  # seeds
    command = ("reproduce", "toy")

    def prepare(self) -> None:
        super().prepare()
        self.put("experiments", "toy_table1", self.table.format([*range(self.n_entries)]))

    def entries(self) -> list[Hashable]:
        return [fit.seed for fit in Evidence(self.store).lines(StoredFit, "tiny-0")]

    def n_done(self, about: dict[str, Any]) -> int:
        return int(about["fitted"])


def empty(folder: Path) -> None:
    """Remove what is in a folder, and not the folder, which may be a disk."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def made(kind: type[Writer], home: Home, seed: int, **changed: Any) -> Iterator[Any]:
    """Yield a writer that is ready; `changed` are its attributes. A cluster that it has started ends with the block."""
    writer = kind(home, random.Random(seed))
    vars(writer).update(changed)
    try:
        writer.prepare()
        yield writer
    finally:
        if nodes := getattr(writer, "nodes", None):
            nodes.stdin.close()
            nodes.wait(60)
