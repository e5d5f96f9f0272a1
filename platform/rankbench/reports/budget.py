"""The budget of a sweep: settings, fits and seconds of each model in the search and in the final runs.

Settings that share a fit each record all of its seconds. One of n settings therefore counts 1/n of the fit and of its
seconds, so that the sums are those of the fits that were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from rankbench.reports.page import tabulated
from rankbench.tracking.record import RunRecord


@dataclass(frozen=True)
class Spent:
    """Budget of one arm on one dataset. A setting that the search stopped counts with the seconds until its last evaluation on
    the validation set, a failed run with the seconds in its record, if any.
    """

    dataset: str
    arm: str
    settings: int = 0
    search_fits: float = 0.0
    search_seconds: float = 0.0
    final_runs: int = 0
    final_fits: float = 0.0
    final_seconds: float = 0.0
    stopped: int = 0
    failed: int = 0

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.final_seconds

    def plus(self, other: Spent) -> Spent:
        """Return the sum with the dataset and arm of this entry."""
        amounts = [name for name in vars(self) if name not in ("dataset", "arm")]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in amounts})


def spent(records: Iterable[RunRecord]) -> tuple[Spent, ...]:
    """Return one entry per dataset and arm, in the order of the records."""
    result: dict[tuple[str, str], Spent] = {}
    for record in records:
        key = record.dataset.name, record.label
        fit, seconds = 1 / record.fit_shared_by, record.own_seconds
        if record.stage == "search":
            own = Spent(*key, settings=1, search_fits=fit, search_seconds=seconds)
        else:
            own = Spent(*key, final_runs=1, final_fits=fit, final_seconds=seconds)
        own = replace(own, stopped=int(record.stopped), failed=int(record.failed))
        result[key] = result[key].plus(own) if key in result else own
    return tuple(result.values())


def budget_columns(entries: tuple[Spent, ...]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells, with the sums in the last line and without columns that are 0 in every line."""
    several = len({each.dataset for each in entries}) > 1
    total = reduce(Spent.plus, entries, Spent("all", "" if several else "all"))
    searching = total.settings > 0
    columns: list[tuple[bool, str, Callable[[Spent], str]]] = [
        (several, "dataset", lambda each: each.dataset),
        (True, "model", lambda each: each.arm),
        (searching, "searched settings", lambda each: f"{each.settings:,}"),
        (total.stopped > 0, "stopped early", lambda each: f"{each.stopped:,}"),
        (searching, "search fits", lambda each: _fits(each.search_fits)),
        (searching, "search fit s", lambda each: _s(each.search_seconds)),
        (True, "final runs", lambda each: f"{each.final_runs:,}"),
        (True, "final fits", lambda each: _fits(each.final_fits)),
        (True, "final fit s", lambda each: _s(each.final_seconds)),
        (searching, "all fit s", lambda each: _s(each.seconds)),
        (total.failed > 0, "failed runs", lambda each: str(each.failed)),
    ]
    shown = [(name, cell) for needed, name, cell in columns if needed]
    return tabulated([*entries, *[total] * (len(entries) > 1)], shown)


def seconds_between(started_at: str, finished_at: str) -> float | None:
    """Return the seconds between two times in ISO format; None if one is missing."""
    try:
        return (datetime.fromisoformat(finished_at) - datetime.fromisoformat(started_at)).total_seconds()
    except (TypeError, ValueError):
        return None


def _fits(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")


def _s(seconds: float) -> str:
    return f"{seconds:,.1f}"
