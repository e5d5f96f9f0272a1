"""Studies and their registry. A study is a function from parameters to rows with measured and published numbers; `write.py`
writes them to files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.progress import Progress
from rankbench.core.registry import Registry
from rankbench.reports.figure import Figure

STUDIES: Registry[Study] = Registry("study")


@dataclass(frozen=True)
class Findings:
    """The result of a study. `columns`: key of a row → heading, in the order of the table; `rows`: a JSON value or None for
    each key; `datasets`: a description of each; `notes`: sentences that explain the numbers.
    """

    columns: dict[str, str]
    rows: list[dict[str, Any]]
    datasets: list[dict[str, Any]]
    notes: list[str]
    figure: Figure = field(repr=False)


@dataclass(frozen=True)
class Study:
    """`measure(p, seed, environment, progress)` runs the study; `title` is its heading, `source` the paper's table."""

    name: str
    params: type
    measure: Callable[[Any, int, Environment, Progress], Findings]
    title: str
    source: str


def study(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as the `measure` of a study; `about` are the other fields of Study."""
    return STUDIES.decorator(name, lambda measure: Study(name, params, measure, **about))


def registered() -> Registry[Study]:
    """The registry, with every file of this folder imported."""
    return STUDIES.filled_from("rankbench.studies")
