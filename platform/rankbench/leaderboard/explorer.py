"""The board that a reader works with: standings by metric, budget, kind of data and family, computed in the page.

All values are in the page, so that it loads nothing and works as a file. Its script (explorer.js) computes what
`judge/ranking.py` does: mean ranks and shares of the best value in which each source of datasets counts once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rankbench.core.palette import COLOURS
from rankbench.leaderboard.collection import Member, own_source
from rankbench.leaderboard.comparable import value_of
from rankbench.leaderboard.results import Result, seconds_of
from rankbench.reports.page import Interactive

HERE = Path(__file__).parent
METRICS = ("ndcg@20", "recall@20", "ndcg@10", "mrr@20", "precision@20")  # those that the page switches between
NO_RESULT = -1  # within the budget; a method that was not measured, or cannot be, has null


def explorer(
    boards: Mapping[str, Sequence[Result]],
    start: str,
    families: Mapping[str, Sequence[str]],
    collection: Mapping[str, Member],
    metric: str,
) -> Interactive:
    """Return the board of the entries by budget. `start` and `metric`: the budget and the metric that are shown first."""
    entries = [each for found in boards.values() for each in found]
    datasets, methods = sorted({each.dataset for each in entries}), sorted({each.entrant for each in entries})
    metrics = [name for name in dict.fromkeys((metric, *METRICS)) if any(name in each.metrics for each in entries)] or [metric]
    traits = {each.dataset: each.traits for each in entries if each.traits}
    cpus: dict[str, dict[str, set[str]]] = {name: {} for name in datasets}
    for allowed, found in boards.items():
        for each in found:
            cpus[each.dataset].setdefault(allowed, set()).update(filter(None, [each.cpu]))
    about: dict[str, Any] = {
        "metrics": metrics,
        "budgets": sorted(boards, key=seconds_of),
        "start": start,
        "colours": COLOURS,
        "datasets": [_dataset(name, traits.get(name, {}), cpus[name], collection) for name in datasets],
        "methods": [{"name": name, "families": [*families.get(name, ())]} for name in methods],
        "tuned": {},
        "default": {},
        "seconds": {},
        "settled": {},
    }
    for allowed, found in boards.items():
        of = {(each.dataset, each.entrant): each for each in found}
        table = [[of.get((dataset, method)) for method in methods] for dataset in datasets]
        about["tuned"][allowed] = {name: _cells(table, lambda each, name=name: _tuned(each, name)) for name in metrics}
        about["default"][allowed] = {name: _cells(table, lambda each, name=name: _default(each, name)) for name in metrics}
        about["seconds"][allowed] = _cells(table, lambda each: _rounded(each.seconds.get("all")))
        about["settled"][allowed] = _cells(table, lambda each: int(each.over) if each.finished else None)
    # The text stands between tags of a page.
    text = json.dumps(about, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Interactive("explorer", text, _asset("explorer.js"), _asset("explorer.css"))


def _dataset(
    name: str, traits: Mapping[str, float], cpus: Mapping[str, set[str]], collection: Mapping[str, Member]
) -> dict[str, Any]:
    member = collection.get(name)
    return {
        "name": name,
        "split": member.split if member else "not in the collection",
        "source": member.source if member else own_source(name),
        "interactions": int(traits.get("interactions", 0)),
        "density": _rounded(traits.get("density", 0.0)),
        "processors": {allowed: sorted(of_budget) for allowed, of_budget in cpus.items()},
    }


def _cells(table: Sequence[Sequence[Result | None]], value: Any) -> list[list[float | None]]:
    return [[None if each is None else value(each) for each in row] for row in table]


def _tuned(entry: Result, metric: str) -> float | None:
    return _rounded(value_of(entry, metric))


def _default(entry: Result, metric: str) -> float | None:
    if entry.finished:
        return _rounded(entry.default.get(metric, None if entry.default else NO_RESULT))
    return _tuned(entry, metric)


def _rounded(value: float | None) -> float | None:
    """With the digits of the store, so that what is equal there is equal in the page, and nothing else."""
    return None if value is None else NO_RESULT if math.isnan(value) else float(f"{value:.6g}")


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
