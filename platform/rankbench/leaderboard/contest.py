"""The entries of a leaderboard that are still to be run, and the loop that runs them on a cluster and stores each at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankbench.cluster.machine import Needs, capacity
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, StorageError, first_line
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size, memory
from rankbench.experiment.job import Job
from rankbench.experiment.outcome import now
from rankbench.leaderboard.attempt import Attempt, Rules
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.entrants import Entrant
from rankbench.leaderboard.results import Result, Results, Status

OUTSIDE = 1800.0  # seconds for reading the data, and for the test, which the budget does not count
GRACE = 0.1  # share of the budget by which an entry may be late before its process is ended
OF_THE_MACHINE = (StorageError, DownloadError, OSError, MemoryError)  # another one, or another day, may do
LATE = f"the search had not ended after {1 + GRACE:.1f} times the budget"


@dataclass(frozen=True)
class Entry:
    """An entrant on a dataset, where the budget `allowed` is `seconds`."""

    entrant: Entrant
    card: Card
    size: Size
    allowed: Budget
    seconds: float

    @property
    def memory(self) -> int:
        """Bytes that are reserved: those of a fit, and another model, because the search keeps the best one."""
        config = self.entrant.config()
        n_bytes = memory(Job(self.card, (config,), "train"), self.size)
        return n_bytes + (4 * self.size.items**2 if config.spec.dense else 0)


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
        return sum(each.seconds for each in self.left)


def plan(
    entrants: Sequence[Entrant],
    cards: Sequence[Card],
    budget: Budget,
    rules: Rules,
    results: Results,
    environment: Environment,
    on_dataset: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Plan:
    """Prepare the datasets that can be had, and return what is left of every entrant on each of them: small datasets first.

    `on_dataset` is told of each dataset, the number of those before it, and of all.
    """
    left: list[Entry] = []
    problems: dict[str, str] = {}
    sizes: dict[str, Size] = {}
    done = 0
    for number, card in enumerate(cards):
        on_dataset(card.name, number, len(cards))
        try:
            dataset = prepare(card, environment)
        except DownloadError as error:
            problems[card.name] = error.brief
            continue
        sizes[card.name] = size = Size.of(dataset)
        seconds = budget.seconds(dataset.split.train.nnz)
        for entrant in entrants:
            key = card.content_key()
            known = card.name, key, dataset.fingerprint, entrant.name, entrant.key, str(budget), rules.metric
            if results.find(*known, rules.n_threads):
                done += 1
            else:
                left.append(Entry(entrant, card, size, budget, seconds))
    left.sort(key=lambda each: (each.size.interactions, each.card.name))
    return Plan(tuple(left), done, problems)


def run(
    todo: Plan,
    rules: Rules,
    results: Results,
    environment: Environment,
    cluster: Session,
    on_done: Callable[[Result], None] = lambda result: None,
) -> None:
    """Run the entries that are left, as many at once as the processors allow, and store each as it ends."""
    from rankbench.cluster.timed_actors import Work, run_timed  # imports Ray, which reads the variables that the session sets

    entries = []
    for entry in todo.left:
        if capacity(Needs(rules.n_threads, entry.memory), cluster.machines):
            entries.append(entry)
        else:
            # A larger machine tries it again.
            on_done(_without(entry, rules, "failed", f"needs {entry.memory / 1e9:.0f} GB of memory", results))
    works = [
        Work(
            Attempt,
            (entry.entrant, entry.card, entry.allowed, rules, environment),
            (("load", OUTSIDE), ("search", (1 + GRACE) * entry.seconds), ("test", OUTSIDE)),
            entry.memory,
        )
        for entry in entries
    ]
    n_slots = sum(machine.cpus // rules.n_threads for machine in cluster.machines)
    for number, ending in run_timed(works, rules.n_threads, n_slots):
        entry = entries[number]
        if ending.kind == "answer" and in_time(ending.answer[0]):
            result, per_user = ending.answer
            results.add(result, per_user)
            on_done(result)
        elif ending.kind == "answer" or (ending.kind == "late" and ending.at == "search"):
            # Processes are ended a little late, and an answer may come before; the clock of the entry itself is exact.
            on_done(_without(entry, rules, "over budget", LATE, results))
        elif ending.kind == "error" and ending.at in ("begin", "load") and not isinstance(ending.error, OF_THE_MACHINE):
            on_done(_without(entry, rules, "not applicable", str(ending.error), results))
        else:
            reason = first_line(ending.error) if ending.error else f"late in {ending.at}"
            on_done(_without(entry, rules, "failed", reason, results))


def in_time(result: Result) -> bool:
    """Whether an entry that was measured had ended in its time."""
    return result.seconds["all"] <= (1 + GRACE) * result.budget


def _without(entry: Entry, rules: Rules, status: Status, reason: str, results: Results) -> Result:
    """Store that an entry has no result, and why."""
    result = Result(
        dataset=entry.card.name,
        card=entry.card.content_key(),
        entrant=entry.entrant.name,
        rules=entry.entrant.key,
        allowed=str(entry.allowed),
        budget=entry.seconds,
        metric=rules.metric,
        threads=rules.n_threads,
        status=status,
        reason=" ".join(reason.split())[:300],
        started_at=now(),
    )
    results.add(result)
    return result
