"""The entries of a leaderboard that are still to be run, and the loop that runs them on a cluster and stores each at once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from rankbench.cluster.machine import capacity
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, without_colours
from rankbench.data.cards import Card
from rankbench.data.describe import why_missing
from rankbench.data.prepare import prepare, prepared_already
from rankbench.experiment.estimate import Size, memory
from rankbench.experiment.outcome import now
from rankbench.fitting.drive import Row
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.entry import GRACE, LATE, EntryJob, Rules
from rankbench.leaderboard.results import Leaderboard, Result, Status
from rankbench.ledger.claims import Claims
from rankbench.ledger.line import measured_in
from rankbench.schema.experiment import Resources
from rankbench.sweeps.running import Follow, Running
from rankbench.sweeps.search.budget import Budget
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import RunRecord, read_per_user

CLAIMS = ".claims"  # folder in that of the store: two commands that share the store need not share anything else
RUNS = "entries"  # folder of the results, of records until they are stored


@dataclass(frozen=True)
class Entry:
    """An entrant on a dataset, whose prepared data have the `fingerprint`. The budget `allowed` is `seconds` there, and
    `results` is where the result is kept. What is not known of data that are not prepared is None, or empty.
    """

    entrant: Entrant
    card: Card
    size: Size | None
    allowed: Budget
    seconds: float | None
    results: Leaderboard
    fingerprint: str = ""

    def unit(self, rules: Rules) -> Unit:
        """The entry as a fit that is run like any other. Its memory is that of a fit and of another model, because the search
        keeps the best one.
        """
        assert self.size is not None, "what runs is prepared"
        key = str(self.results.folder.resolve()), *self.without_result(rules).key
        job = EntryJob.of(self.entrant, self.card, self.allowed, rules, key)
        n_bytes = memory(job, self.size) + (4 * self.size.items**2 if job.configs[0].spec.dense else 0)
        return Unit(job, rules.n_threads, n_bytes, self.seconds or 0.0)

    def without_result(self, rules: Rules, status: Status = "failed", reason: str = "") -> Result:
        """What the store says if the entry has no result."""
        return Result(
            dataset=self.card.name,
            card=self.card.content_key(),
            fingerprint=self.fingerprint,
            entrant=self.entrant.name,
            rules=self.entrant.key,
            allowed=str(self.allowed),
            budget=self.seconds or 0.0,
            metric=rules.metric,
            threads=rules.n_threads,
            status=status,
            reason=" ".join(without_colours(reason).split())[:300],
            started_at=now(),
        )

    def result(self, record: RunRecord, rules: Rules) -> Result:
        """What the store says after the entry was run. Only what may be the fault of the machine has failed."""
        searched, reason = record.searched, record.error or ""
        if searched is None:
            return self.without_result(rules, "over budget" if reason == LATE else "failed", reason)
        if searched.refused:
            return self.without_result(rules, "not applicable", reason)
        # Processes are ended a little late, and an answer may come before; the clock of the entry itself is exact.
        if not in_time(record.seconds["all"], self.seconds or 0.0):
            return self.without_result(rules, "over budget", LATE)
        about = asdict(searched) | measured_in(record) | {"method": record.method, "params": record.params}
        about["joules"] = record.joules
        del about["refused"]
        if "without_history" not in record.users:
            about["users"] = {}  # so that lines are those of the time before the field
        return replace(self.without_result(rules, "finished"), **about)


@dataclass(frozen=True)
class Plan:
    """What a call is about: the entries that are `left` in their order, the number of those `done` before, and the datasets
    that are `not_available`, with the reason.
    """

    left: tuple[Entry, ...]
    done: int
    not_available: dict[str, str]

    @property
    def seconds(self) -> float:
        return sum(each.seconds or 0.0 for each in self.left)

    @property
    def of_unknown_size(self) -> list[str]:
        """The datasets for which nobody knows how long they take."""
        return [*dict.fromkeys(each.card.name for each in self.left if each.seconds is None)]


def plan(
    entrants: Sequence[Entrant],
    cards: Sequence[Card],
    budget: Budget,
    rules: Rules,
    store_of: Callable[[Card, Entrant], Leaderboard],
    environment: Environment,
    on_dataset: Callable[[str, int, int], None] = lambda name, done, total: None,
    dry_run: bool = False,
) -> Plan:
    """Prepare the datasets that can be had, and return what is left of every entrant on each of them: small datasets first.
    With `dry_run` nothing is prepared: what is not prepared has the size that its card expects, if it says so.

    `on_dataset` is told of each dataset, the number of those before it, and of all.
    """
    left: list[Entry] = []
    problems: dict[str, str] = {}
    done = 0
    for number, card in enumerate(cards):
        on_dataset(card.name, number, len(cards))
        try:
            dataset = prepared_already(card, environment) if dry_run else prepare(card, environment)
        except DownloadError as error:
            problems[card.name] = error.brief
            continue
        if dataset is None and (why := why_missing(card, environment)):
            problems[card.name] = why
            continue
        size = Size.of(dataset) if dataset else Size.known(card, environment)
        trained_on = dataset.split.train.nnz if dataset else size.interactions if size else None
        seconds = None if trained_on is None and budget.per_million else budget.seconds(trained_on or 0)
        for entrant in entrants:
            results = store_of(card, entrant)
            entry = Entry(entrant, card, size, budget, seconds, results, dataset.fingerprint if dataset else "")
            if results.find(entry.without_result(rules)):
                done += 1
            else:
                left.append(entry)
    left.sort(key=lambda each: (each.size.interactions if each.size else math.inf, each.card.name))
    return Plan(tuple(left), done, problems)


def run(
    todo: Plan,
    rules: Rules,
    environment: Environment,
    cluster: Session,
    on_done: Callable[[Result, list[Row]], None] = lambda result, curve: None,
    follow: Follow = lambda unit, record: lambda rows: None,
    on_other: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Run the entries that are left, as many at once as the processors allow, and store each as it ends. `on_done` also gets
    the curve of its search; `follow` is that of `Running`.

    Several commands may share a store: each begins what no other one has begun, and `on_other` is told of the entries that
    another one runs, or has run since the plan was made.
    """
    from rankbench.sweeps.run_units import run_units  # imports Ray, which reads the variables that the session sets

    entries, units, begun = dict[str, Entry](), list[Unit](), dict[str, str]()
    runs = SweepStore(environment.results / RUNS)

    def keep(entry: Entry, result: Result, curve: list[Row], per_user: pa.Table | None = None) -> None:
        entry.results.add(result, per_user)
        on_done(result, curve)

    for entry in todo.left:
        unit = entry.unit(rules)
        if capacity(unit.needs, cluster.machines):
            entries[unit.run_id] = entry
            units.append(unit)
        else:
            # A larger machine tries it again.
            keep(entry, entry.without_result(rules, "failed", f"needs {unit.memory_bytes / 1e9:.0f} GB of memory"), [])

    with ExitStack() as held:
        folders = {entry.results.folder for entry in todo.left}
        claims = {folder: held.enter_context(Claims(folder / CLAIMS)) for folder in folders}

        def begins(unit: Unit) -> bool:
            entry = entries[unit.run_id]
            wanted, of_store = entry.without_result(rules), claims[entry.results.folder]
            if of_store.take(str(wanted.key)):
                entry.results.read_again(Result, wanted.dataset)
                if not entry.results.find(wanted):
                    return True
                of_store.release(str(wanted.key))
            on_other(entry)
            return False

        def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            """Store an entry; a command that was killed may have left its record."""
            if cached and not begins(unit):
                return
            (record,), entry, folder = records, entries[unit.run_id], runs.records / unit.run_id
            result = entry.result(record, rules)
            result = replace(result, started_at=begun.get(unit.run_id, result.started_at))
            keep(entry, result, record.curve, read_per_user(folder) if result.finished else None)
            shutil.rmtree(folder)
            claims[entry.results.folder].release(str(entry.without_result(rules).key))

        def follow_entry(unit: Unit, record: RunRecord) -> Callable[[Sequence[Row]], None]:
            begun[unit.run_id] = record.started_at
            return follow(unit, record)

        running, resources = Running(), Resources(cpus=rules.n_threads, nodes=1)
        running.follow = follow_entry
        run_units(units, environment, runs, cluster, resources, done, running=running, in_order=True, may_begin=begins)


def in_time(seconds: float, budget: float) -> bool:
    """Whether an entry that took `seconds` had ended in its time."""
    return seconds <= (1 + GRACE) * budget
