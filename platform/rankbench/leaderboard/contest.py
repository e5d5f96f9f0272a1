"""The entries of a leaderboard that are still to be run, and the loop that runs them on a cluster and stores each at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rankbench.cluster.machine import Needs, capacity
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, first_line, without_colours
from rankbench.data.availability import why_missing
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare, prepared_already
from rankbench.experiment.estimate import Size, memory
from rankbench.experiment.job import Job
from rankbench.experiment.outcome import now
from rankbench.leaderboard.attempt import Attempt, NotApplicableError, Rules
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.results import Leaderboard, Result, Status
from rankbench.ledger.claims import Claims

OUTSIDE = 1800.0  # seconds for reading the data, and for the test, which the budget does not count
WARM_UP = 300.0  # seconds for a fit on made-up data, which compiles loops; a machine that is not busy needs some ten
GRACE = 0.1  # share of the budget by which an entry may be late before its process is ended
CLAIMS = ".claims"  # folder in that of the store: two commands that share the store need not share anything else
LATE = f"the search had not ended after {1 + GRACE:.1f} times the budget"


@dataclass(frozen=True)
class Entry:
    """An entrant on a dataset, whose prepared data have the `fingerprint`. The budget `allowed` is `seconds` there, and
    `results` is where the result is kept. What
    is not known of data that are not prepared is None, or empty.
    """

    entrant: Entrant
    card: Card
    size: Size | None
    allowed: Budget
    seconds: float | None
    results: Leaderboard
    fingerprint: str = ""

    @property
    def memory(self) -> int:
        """Bytes that are reserved: those of a fit, and another model, because the search keeps the best one."""
        assert self.size is not None, "what runs is prepared"
        config = self.entrant.config()
        n_bytes = memory(Job(self.card, (config,), "train"), self.size)
        return n_bytes + (4 * self.size.items**2 if config.spec.dense else 0)

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
    on_done: Callable[[Result], None] = lambda result: None,
    on_other: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Run the entries that are left, as many at once as the processors allow, and store each as it ends.

    Several commands may share a store: each begins what no other one has begun, and `on_other` is told of the entries that
    another one runs, or has run since the plan was made.
    """
    from rankbench.cluster.timed_actors import Work, run_timed  # imports Ray, which reads the variables that the session sets

    begun: list[Entry] = []

    def keep(entry: Entry, result: Result, per_user: pa.Table | None = None) -> None:
        entry.results.add(result, per_user)
        on_done(result)

    def works(claims: dict[Path, Claims]) -> Iterator[Work]:
        for entry in todo.left:
            wanted, seconds = entry.without_result(rules), entry.seconds or 0.0
            if not capacity(Needs(rules.n_threads, entry.memory), cluster.machines):
                # A larger machine tries it again.
                keep(entry, entry.without_result(rules, "failed", f"needs {entry.memory / 1e9:.0f} GB of memory"))
                continue
            of_store = claims[entry.results.folder]
            if not of_store.take(str(wanted.key)):
                on_other(entry)
                continue
            entry.results.read_again(Result, wanted.dataset)
            if entry.results.find(wanted):
                of_store.release(str(wanted.key))
                on_other(entry)
                continue
            begun.append(entry)
            yield Work(
                Attempt,
                (entry.entrant, entry.card, entry.allowed, rules, environment),
                (("load", OUTSIDE), ("warm_up", WARM_UP), ("search", (1 + GRACE) * seconds), ("test", OUTSIDE)),
                entry.memory,
            )

    n_slots = max(1, sum(machine.cpus // rules.n_threads for machine in cluster.machines))
    with ExitStack() as held:
        folders = {entry.results.folder for entry in todo.left}
        claims = {folder: held.enter_context(Claims(folder / CLAIMS)) for folder in folders}
        for number, ending in run_timed(works(claims), rules.n_threads, n_slots):
            entry = begun[number]
            if ending.kind == "answer" and in_time(ending.answer[0]):
                keep(entry, *ending.answer)
            elif ending.kind == "answer" or (ending.kind == "late" and ending.at == "search"):
                # Processes are ended a little late, and an answer may come before; the clock of the entry itself is exact.
                keep(entry, entry.without_result(rules, "over budget", LATE))
            elif isinstance(ending.error, NotApplicableError):
                keep(entry, entry.without_result(rules, "not applicable", str(ending.error)))
            else:
                # Whatever else went wrong may be the fault of the machine, so it is tried again.
                reason = first_line(ending.error) if ending.error else ""
                keep(entry, entry.without_result(rules, "failed", reason))
            claims[entry.results.folder].release(str(entry.without_result(rules).key))


def in_time(result: Result) -> bool:
    """Whether an entry that was measured had ended in its time."""
    return result.seconds["all"] <= (1 + GRACE) * result.budget
