"""The entries of a leaderboard that are still to be run, and the loop that runs them on a cluster and stores each at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import product

import pyarrow as pa

from rankbench.cluster.machine import capacity
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError, without_colours
from rankbench.core.rng import stream
from rankbench.data.cards import Card
from rankbench.experiment.estimate import Size, memory
from rankbench.experiment.outcome import now
from rankbench.fitting.drive import Row
from rankbench.leaderboard.comparable import comparable, ranking_of
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.entry import DIVERGED, LATE, LIVE_BYTES, EntryJob, Rules
from rankbench.leaderboard.milestones import before, name_of
from rankbench.leaderboard.results import BY_DATASET, Leaderboard, Result, Search, Status, thinned, within
from rankbench.leaderboard.saved import SavedRace
from rankbench.ledger.claims import Claims
from rankbench.ledger.line import measured_in, origin
from rankbench.schema.experiment import Resources
from rankbench.sweeps.running import Follow, Running
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import RunRecord, read_per_user

CLAIMS = ".claims"  # folder in that of the store: two commands that share the store need not share anything else
SHOWN = ("ndcg@", "recall@", "mrr@", "precision@")  # metrics of the defaults that a line has, because a store is committed
RUNS = "entries"  # folder of the results, of records until they are stored


@dataclass(frozen=True)
class Entry:
    """An entrant on a dataset, whose prepared data have the `fingerprint`, until a milestone and by the `rules`. `results` is
    where the result is kept. What is not known of data that are not prepared is None, or empty.
    """

    entrant: Entrant
    card: Card
    size: Size | None
    milestone: float
    results: Leaderboard
    rules: Rules
    fingerprint: str = ""

    @property
    def seconds(self) -> float:
        """Those from the milestone before until this one."""
        return self.milestone - before(self.milestone)

    @property
    def search(self) -> Search:
        """How settings are searched: as for the store's other entries on the dataset, so that all methods have one way. If it
        has none, by the dataset, so that the luck of a few draws is not the same on all of them.
        """
        lines = self.results.lines(Result, self.card.name)
        return lines[0].search if lines else BY_DATASET

    @property
    def unit(self) -> Unit:
        """The entry as a fit that is run like any other. Its memory is that of a fit, and of the best model or of the fits that
        the race keeps.
        """
        assert self.size is not None, "what runs is prepared"
        rules, key = self.rules, (str(self.results.folder.resolve()), *self.without_result().race)
        draws = int(stream(rules.seed, "race", self.card.name).integers(2**31)) if self.search == BY_DATASET else rules.seed
        job = EntryJob.of(self.entrant, self.card, self.milestone, rules, key, draws)
        one, dense = memory(job, self.size), job.configs[0].spec.dense
        return Unit(job, rules.n_threads, one + (4 * self.size.items**2 if dense else min(one, LIVE_BYTES)), self.seconds)

    def why_anew(self, unit: Unit, environment: Environment) -> str:
        """Why the race does not go on from a milestone that it has reached; empty if it does, or has reached none."""
        assert isinstance(unit.job, EntryJob), "an entry is run"
        wanted = self.without_result()
        lines = self.results.lines(Result, self.card.name)
        reached = any(each.continues(wanted) and each.finished and each.budget < self.milestone for each in lines)
        return SavedRace.of(environment, unit.job.race).why_anew(self.milestone) if reached else ""

    @property
    def race(self) -> str:
        """The name of its race among those of the store, for claims."""
        return str(self.without_result().race)

    @property
    def done(self) -> bool:
        return self.results.find(self.without_result()) is not None

    def without_result(self, status: Status = "failed", reason: str = "") -> Result:
        """What the store says if the entry has no result."""
        return Result(
            dataset=self.card.name,
            card=self.card.content_key(),
            fingerprint=self.fingerprint,
            entrant=self.entrant.name,
            rules=self.entrant.key,
            allowed=name_of(self.milestone),
            budget=self.milestone,
            metric=self.rules.metric,
            threads=self.rules.n_threads,
            precision=self.rules.precision,
            search=self.search,
            status=status,
            reason=" ".join(without_colours(reason).split())[:300],
            started_at=now(),
        )

    def result(self, record: RunRecord) -> Result:
        """What the store says after the entry was run. Only what may be the fault of the machine has failed."""
        searched, reason = record.searched, record.error or ""
        if searched is None or searched.refused:
            of_method: Status = "over budget" if reason == LATE else "diverged" if reason.startswith(DIVERGED) else "failed"
            lost = self.without_result("not applicable" if searched else of_method, reason)
            return replace(lost, **origin(record.environment))
        about = asdict(searched) | measured_in(record) | {"method": record.method, "params": record.params}
        about |= {"joules": record.joules, "curve": thinned([(row["seconds"], row["valid"]) for row in record.curve])}
        about["default"] = {
            name: each for name, each in searched.default.items() if name == self.rules.metric or name.startswith(SHOWN)
        }
        del about["refused"]
        if "without_history" not in record.users:
            about["users"] = {}  # so that lines are those of the time before the field
        return replace(self.without_result("finished"), **about)


@dataclass(frozen=True)
class Plan:
    """What a call is about: the entries that are `left` in their order, which is that of the milestones first, the number of
    those `done` before, and the datasets that are `not_available`, with the reason. If `best` is given, that many of the
    `entrants` go on from a milestone to the next one: those with the best mean ranks on the validation sets of the `datasets`,
    whose near-duplicates have the same of the `sources`. All lines are in the `stores`.
    """

    left: tuple[Entry, ...]
    done: int
    not_available: dict[str, str]
    best: int | None = None
    entrants: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    stores: tuple[Leaderboard, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def milestones(self) -> list[float]:
        return [*dict.fromkeys(each.milestone for each in self.left)]

    def until(self, milestone: float) -> list[Entry]:
        """Return what is still to be run until a milestone. While entries of the milestone before were not tried, nobody knows
        which entrants go on; those that are returned then are as many.
        """
        entries = [each for each in self.left if each.milestone == milestone and not each.done]
        earlier = before(milestone)
        if self.best is None or not earlier or not entries:
            return entries
        names = self._leading(name_of(earlier), entries[0].rules)
        if self._untried(earlier):
            names = [*dict.fromkeys((*names, *self.entrants))]
        return [each for each in entries if each.entrant.name in names[: self.best]]

    @property
    def everything(self) -> list[Entry]:
        """Return what is still to be run, if no race is over before."""
        return [each for milestone in self.milestones for each in self.until(milestone)]

    def untried(self, milestone: float) -> list[Entry]:
        """Return the entries until a milestone of which no command has stored anything, after the stores were read again."""
        for store, dataset in product(self.stores, self.datasets):
            store.read_again(Result, dataset)
        return self._untried(milestone)

    def _untried(self, milestone: float) -> list[Entry]:
        return [each for each in self.until(milestone) if not each.results.tried(each.without_result())]

    def _leading(self, allowed: str, rules: Rules) -> list[str]:
        """Return the entrants that were measured at a milestone on all of the datasets, best first by their values on the
        validation sets: those on test decide nothing.
        """
        stored = (line for store in self.stores for line in within(store.all(Result), allowed))
        of_plan = [each for each in stored if each.dataset in self.datasets and each.entrant in self.entrants]
        alike = [each for each in of_plan if (each.threads, each.metric) == (rules.n_threads, rules.metric)]
        shown = comparable(alike, (rules.metric, rules.n_threads))[0]
        on_valid = [each if each.valid is None else replace(each, metrics={rules.metric: (each.valid, 0, 0)}) for each in shown]
        board = ranking_of(on_valid, rules.metric, self.sources)
        return [board.methods[i] for i in board.order]


def run(
    todo: Plan,
    environment: Environment,
    cluster: Session,
    on_done: Callable[[Result, list[Row]], None] = lambda result, curve: None,
    follow: Follow = lambda unit, record: lambda rows: None,
    on_other: Callable[[Entry], None] = lambda entry: None,
    on_anew: Callable[[Entry, str], None] = lambda entry, why: None,
) -> None:
    """Run the entries that are left, one milestone after another, as many at once as the processors allow, and store each as it
    ends. `on_done` also gets the curve of its search; `follow` is that of `Running`. `on_anew` is told of the entries whose
    race begins anew, and why.

    Several commands may share a store: each begins what no other one has begun, and `on_other` is told of the entries that
    another one runs, or has run since the plan was made. Raises ClusterError if only the best entrants go on, and another
    command still runs entries that decide which these are.
    """
    failed = set[str]()  # races, which another milestone does not help

    def keep(entry: Entry, result: Result, curve: list[Row], per_user: pa.Table | None = None) -> None:
        if result.status == "failed":
            failed.add(entry.race)
        entry.results.add(result, per_user)
        on_done(result, curve)

    for milestone in todo.milestones:
        if todo.best is not None and (open := todo.untried(before(milestone))):
            names = ", ".join(f"{each.entrant.name} on {each.card.name}" for each in open[:3])
            raise ClusterError(
                f"another command still runs {len(open)} entries until {name_of(before(milestone))} ({names}), which decide "
                "which methods go on; the same command goes on after them"
            )
        if entries := [each for each in todo.until(milestone) if each.race not in failed]:
            _run(entries, environment, cluster, keep, follow, on_other, on_anew)


def _run(
    left: Sequence[Entry],
    environment: Environment,
    cluster: Session,
    keep: Callable[..., None],
    follow: Follow,
    on_other: Callable[[Entry], None],
    on_anew: Callable[[Entry, str], None],
) -> None:
    """Run entries of one milestone, and `keep` what became of each."""
    from rankbench.sweeps.run_units import run_units  # imports Ray, which reads the variables that the session sets

    entries, units, begun = dict[str, Entry](), list[Unit](), dict[str, str]()
    runs = SweepStore(environment.results / RUNS)
    for entry in left:
        unit = entry.unit
        if capacity(unit.needs, cluster.machines):
            entries[unit.run_id] = entry
            units.append(unit)
        else:
            # A larger machine tries it again.
            keep(entry, entry.without_result("failed", f"needs {unit.memory_bytes / 1e9:.0f} GB of memory"), [])

    with ExitStack() as held:
        folders = {entry.results.folder for entry in left}
        claims = {folder: held.enter_context(Claims(folder / CLAIMS)) for folder in folders}

        def begins(unit: Unit) -> bool:
            entry = entries[unit.run_id]
            if claims[entry.results.folder].take(entry.race):
                entry.results.read_again(Result, entry.card.name)
                if not entry.done:
                    if why := entry.why_anew(unit, environment):
                        on_anew(entry, why)
                    return True
                claims[entry.results.folder].release(entry.race)
            on_other(entry)
            return False

        def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            """Store an entry; a command that was killed may have left its record."""
            if cached and not begins(unit):
                return
            (record,), entry, folder = records, entries[unit.run_id], runs.records / unit.run_id
            result = entry.result(record)
            result = replace(result, started_at=begun.get(unit.run_id, result.started_at))
            if not result.finished and len(cluster.machines) > 1:  # this process may have written the record of another one
                result = replace(result, cpu="")
            keep(entry, result, record.curve, read_per_user(folder) if result.finished else None)
            shutil.rmtree(folder)
            claims[entry.results.folder].release(entry.race)

        def follow_entry(unit: Unit, record: RunRecord) -> Callable[[Sequence[Row]], None]:
            begun[unit.run_id] = record.started_at
            return follow(unit, record)

        running, resources = Running(), Resources(cpus=left[0].rules.n_threads, nodes=1)
        running.follow = follow_entry
        run_units(units, environment, runs, cluster, resources, done, running=running, in_order=True, may_begin=begins)
