"""Which entries of a leaderboard are compared with one another, and their ranking.

A store may have entries with one budget by another metric, number of threads or data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from rankbench.judge.printing import counted
from rankbench.judge.ranking import MethodRanking
from rankbench.leaderboard.collection import own_source
from rankbench.leaderboard.results import Result

T = TypeVar("T", str, int)


def usual(values: Iterable[T]) -> T:
    """The value that most have; of equally frequent ones, the smallest."""
    return min(Counter(values).items(), key=lambda each: (-each[1], each[0]))[0]


def kind_of(entries: Sequence[Result], metric: str | None = None) -> tuple[str, int]:
    """Return what entries that are shown together have in common: the metric that chose them, which is `metric` if any were
    chosen by it, and otherwise that of most; and the number of threads that most of these have.
    """
    chosen_by = [each.metric for each in entries]
    by = metric if metric in chosen_by else usual(chosen_by)
    return by, usual(each.threads for each in entries if each.metric == by)


def comparable(entries: Sequence[Result], kind: tuple[str, int]) -> tuple[list[Result], tuple[str, ...]]:
    """Return the entries of one budget that are shown, those of a `kind`, and sentences about the others."""
    notes, (by, threads) = [], kind
    chosen_by = [each.metric for each in entries]
    if others := Counter(each for each in chosen_by if each != by):
        shown = ", ".join(f"{number} by {name}" for name, number in sorted(others.items()))
        notes.append(
            f"Shown are entries chosen on the validation set by {by}; left out are {shown} (the option metric shows these)."
        )
    entries = [each for each in entries if each.metric == by]
    if others := Counter(each.threads for each in entries if each.threads != threads):
        shown = ", ".join(f"{number} with {n}" for n, number in sorted(others.items()))
        of = counted(threads, "thread")
        notes.append(f"Shown are entries of {of}; left out are {shown} (the option threads shows these).")
    newest = current([each for each in entries if each.threads == threads])
    if older := sum(each.threads == threads for each in entries) - len(newest):
        notes.append(f"Left out are {older} entries on earlier data, or by earlier ranges or code of the method.")
    return newest, tuple(notes)


def current(entries: Sequence[Result]) -> list[Result]:
    """The entries on the data of the newest result of their dataset, each entrant with its newest rules. An entry without a
    result may know the card alone.
    """
    newest: dict[str, Result] = {}
    for each in filter(lambda each: each.finished, entries):
        if each.dataset not in newest or each.started_at > newest[each.dataset].started_at:
            newest[each.dataset] = each
    last: dict[tuple[str, str], Result] = {}
    for each in entries:
        data = newest.get(each.dataset, each)
        if each.card == data.card and each.fingerprint in ("", data.fingerprint):
            place = each.dataset, each.entrant
            if place not in last or (each.started_at, each.finished) > (last[place].started_at, last[place].finished):
                last[place] = each
    return [each for each in entries if last.get((each.dataset, each.entrant)) is each]


def value_of(entry: Result, metric: str) -> float | None:
    """Return the value with which an entry is ranked: NaN, which is worse than any other, without a result within the budget.
    None if it counts as not measured: without this metric, where the method cannot be measured, and after a failure, which
    says nothing of the method.
    """
    if entry.finished:
        return entry.metrics[metric][0] if metric in entry.metrics else None
    return math.nan if entry.lost else None


def ranking_of(results: Iterable[Result], metric: str, sources: Mapping[str, str] | None = None) -> MethodRanking:
    """The standings of entries with one budget. `sources`: those of datasets that are near-duplicates of others.

    The table has no gaps. A dataset is left out if fewer than half as many methods were measured on it as on another one, or a
    share less than half as large of those that have an entry there, or if none has a result. Of the methods, those are left out
    that were not measured on all datasets that remain; `value_of` says which were.
    """
    table: dict[str, dict[str, float]] = {}
    asked: Counter[str] = Counter()
    for each in results:
        asked[each.dataset] += 1
        if (value := value_of(each, metric)) is not None:
            table.setdefault(each.dataset, {})[each.entrant] = value
    most = max(map(len, table.values()), default=0)
    shares = {name: len(row) / asked[name] for name, row in table.items()}
    largest = max(shares.values(), default=0.0)
    table = {
        name: row
        for name, row in sorted(table.items())
        if 2 * len(row) >= most and 2 * shares[name] >= largest and not all(map(math.isnan, row.values()))
    }
    everywhere = set.intersection(*(set(row) for row in table.values())) if table else set()
    methods = tuple(sorted(everywhere))
    # Those with a result may be methods that are left out.
    table = {name: row for name, row in table.items() if not methods or not all(math.isnan(row[method]) for method in methods)}
    values = np.array([[row[method] for method in methods] for row in table.values()]).reshape(len(table), len(methods))
    of = sources or {}
    return MethodRanking(tuple(table), methods, values, tuple(of.get(name, own_source(name)) for name in table))
