"""Entries of a store, measured again: the chosen setting is fitted once more on the same data, and measured on test.

On the same processor with the same versions every digit comes back. On others sums have another order, and a fit by gradient
steps ends a little elsewhere; `CLOSE` is how far its metrics may be from those of the entry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.progress import Progress
from rankbench.core.threads import require_threads
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.execution import Execution, ignore_progress
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.leaderboard.agenda import FOLDER
from rankbench.leaderboard.comparable import current
from rankbench.leaderboard.entry import Rules
from rankbench.leaderboard.milestones import budget_of, name_of
from rankbench.leaderboard.options import VerifyOptions
from rankbench.leaderboard.results import Leaderboard, Result, rounded
from rankbench.ledger.line import measured_in

CLOSE = 0.005  # share of the value of the metric that chose the setting


@dataclass(frozen=True)
class Verified:
    """An entry, its values `again`, and by which share of each they differ. `elsewhere`: what is another machine's, if the
    entry was measured with another processor or other versions.
    """

    entry: Result
    again: dict[str, float]
    elsewhere: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return _name(self.entry)

    @property
    def differences(self) -> dict[str, float]:
        stored = {name: self.entry.metrics[name][0] for name in self.again}
        return {name: abs(value - stored[name]) / (abs(stored[name]) or 1) for name, value in self.again.items()}

    @property
    def verdict(self) -> Literal["equal", "close", "differs"]:
        """Whether all digits of all metrics are those of the entry; if not, whether the metric that chose its setting is close,
        which is enough only elsewhere.
        """
        if not any(self.differences.values()):
            return "equal"
        return "close" if self.elsewhere and self.differences[self.entry.metric] <= CLOSE else "differs"

    def facts(self) -> dict[str, object]:
        stored, metric = self.entry.metrics[self.entry.metric][0], self.entry.metric
        return {
            "entry": self.name, "verdict": self.verdict, "metric": metric, "stored": stored, "again": self.again[metric],
            "difference": self.differences[metric], "largest_difference": max(self.differences.values()),
            "n_metrics": len(self.again), "elsewhere": list(self.elsewhere),
        }  # fmt: skip


def chosen(options: VerifyOptions, results: Leaderboard, environment: Environment) -> list[Result]:
    """Return the entries that the options name, or draw from those that can be fitted here, unlike one of a plugin that is not
    loaded or of another card. Raises ConfigError for names of no entry, and of entries without a result.
    """
    require(bool(options.entries) or options.draw is not None, "name entries as DATASET/METHOD, or draw some with --draw 20")
    groups: dict[tuple[str, str, int], list[Result]] = {}
    for each in results.all(Result):
        groups.setdefault((each.allowed, each.metric, each.threads), []).append(each)
    possible = [each for group in groups.values() for each in current(group) if each.finished]
    require(bool(possible), f"{results.folder}: no entries of races; `rankbench leaderboard --budget 30s` measures some")
    found = [each for name in options.entries or () for each in _named(name, possible, results.folder)] or possible
    if options.draw is None:
        return found
    if not options.entries:
        found = [each for each in found if _can_be_fitted(each, environment)]
        require(bool(found), f"{results.folder}: none of the entries can be fitted here")
    return random.Random(options.seed).sample(found, min(options.draw, len(found)))


def _can_be_fitted(entry: Result, environment: Environment) -> bool:
    try:
        _require_here(entry, environment)
    except ConfigError:
        return False
    return True


def _require_here(entry: Result, environment: Environment) -> Job:
    """The job of an entry; ConfigError if it cannot be fitted here."""
    require_threads(entry.threads, f"{_name(entry)}: threads")
    return _job(entry, environment)


def verify(
    options: VerifyOptions,
    environment: Environment,
    skipped: list[str] | None = None,
    on_entry: Callable[[Verified, int, int], None] = lambda verified, done, total: None,
    progress: Progress = ignore_progress,
) -> list[Verified]:
    """Fit and measure entries again, one after another. `on_entry` is told of each, the number of those done, and of all.

    Raises ConfigError for names of no entry, and before the first fit if the card of a dataset or the parameters of a method
    are others now; if only the data are, at that entry.
    """
    results = Leaderboard(environment.stored_beside_experiments(FOLDER, options.store, to_read=True), skipped=skipped)
    entries = chosen(options, results, environment)
    for each in entries:
        _require_here(each, environment)
    found = []
    for each in entries:
        found.append(again(each, environment, progress))
        on_entry(found[-1], len(found), len(entries))
    return found


def again(entry: Result, environment: Environment, progress: Progress = ignore_progress) -> Verified:
    """Fit the setting of an entry and measure it on test. Raises ConfigError if the data are others now."""
    (outcome,) = run(_job(entry, environment), environment, Execution(entry.threads), progress)
    now = measured_in(outcome.record)
    other_data = f"{_name(entry)}: the prepared data of {entry.dataset} are not those of the entry"
    require(now["fingerprint"] == entry.fingerprint, other_data)
    values = {metric: rounded(now["metrics"][metric][0]) for metric in entry.metrics}
    return Verified(entry, values, tuple(_elsewhere(entry, now["cpu"], now["versions"])))


def _job(entry: Result, environment: Environment) -> Job:
    """The fit of the setting of an entry, and the measurement of all of its metrics."""
    name, card = _name(entry), load_card(entry.dataset, environment)
    of_card = f"{name}: the card of {entry.dataset} is another one than that of the entry, whose data cannot be had any more"
    require(card.content_key() == entry.card, of_card)
    config, metrics = configure(entry.method, entry.params, name), metric_set(entry.metrics, source=name)
    return Job(card, (config,), "train", "test", metrics, entry.precision, Rules.seed)


def _elsewhere(entry: Result, cpu: str, versions: dict[str, str]) -> Iterator[str]:
    if entry.cpu != cpu:
        yield f"processor {entry.cpu}, here {cpu}"
    for name, version in entry.versions.items():
        if versions.get(name) != version:
            yield f"{name} {version}, here {versions.get(name, 'not installed')}"


def _named(text: str, entries: Iterable[Result], folder: Path) -> list[Result]:
    """The entries of DATASET/METHOD[/BUDGET]; without a budget, those with the largest one."""
    dataset, _, rest = text.partition("/")
    method, _, budget = rest.partition("/")
    require(bool(method), f"{text}: write DATASET/METHOD or DATASET/METHOD/BUDGET, as in lastfm/ials/30s")
    found = [each for each in entries if (each.dataset, each.entrant) == (dataset, method)]
    if budget:
        allowed = name_of(budget_of(budget, text))
        found = [each for each in found if each.allowed == allowed]
    if not found:
        raise ConfigError(f"{text}: {folder} has no such entry with a result; `rankbench leaderboard show` lists the methods")
    most = max(each.budget for each in found)
    return [each for each in found if each.budget == most]


def _name(entry: Result) -> str:
    return f"{entry.dataset}/{entry.entrant}/{entry.allowed}"
