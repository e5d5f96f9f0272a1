"""Which entries of a store can be compared with each other: those of one budget, number of threads and metric, on the newest
data, by the newest rules. A store may have others beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rankbench.leaderboard.results import Result

T = TypeVar("T", str, int)


def usual(values: Iterable[T]) -> T:
    """The value that most have; of equally frequent ones, the smallest."""
    return min(Counter(values).items(), key=lambda each: (-each[1], each[0]))[0]


def comparable(entries: Sequence[Result], metric: str | None = None) -> tuple[list[Result], tuple[str, ...]]:
    """Return the entries of one budget that are shown, and sentences about the others. They were chosen by `metric`, if any
    were, and otherwise by the metric of most; and they have the number of threads that most of these have.
    """
    notes = []
    chosen_by = [each.metric for each in entries]
    by = metric if metric in chosen_by else usual(chosen_by)
    if others := Counter(each for each in chosen_by if each != by):
        shown = ", ".join(f"{number} by {name}" for name, number in sorted(others.items()))
        notes.append(f"Shown are entries chosen on the validation set by {by}; left out are {shown} (--metric shows these).")
    entries = [each for each in entries if each.metric == by]
    threads = usual(each.threads for each in entries)
    if others := Counter(each.threads for each in entries if each.threads != threads):
        shown = ", ".join(f"{number} with {n}" for n, number in sorted(others.items()))
        notes.append(f"Shown are entries with --threads {threads}; left out are {shown} (--threads shows these).")
    current = _current([each for each in entries if each.threads == threads])
    if older := sum(each.threads == threads for each in entries) - len(current):
        notes.append(f"Left out are {older} entries on earlier data, or by earlier ranges or code of the method.")
    return current, tuple(notes)


def _current(entries: Sequence[Result]) -> list[Result]:
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
