"""What a study is: parameters, and a function from them to rows that stand beside published numbers. A file registers by
existing. A study says what it measured; `write.py` makes files of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.registry import Registry

STUDIES: Registry[Study] = Registry("study")

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Findings:
    """`columns`: key of a row → heading, in the order of the table; `rows`: a JSON value for each key, None where there is
    none. `datasets`: what was used of each. `notes`: a sentence each, on how the numbers are to be read. `draw(pyplot)` makes
    the figure.
    """

    columns: dict[str, str]
    rows: list[dict[str, Any]]
    datasets: list[dict[str, Any]]
    notes: list[str]
    draw: Callable[[Any], Any] = field(repr=False)


@dataclass(frozen=True)
class Study:
    """`measure(p, seed, environment, progress)` does the work; `title` is a question or a claim, `source` the paper's table."""

    name: str
    params: type
    measure: Callable[[Any, int, Environment, Progress], Findings]
    title: str
    source: str


def study(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as `measure` of a study; `about` are the other fields of Study."""

    def add(measure: Callable) -> Callable:
        STUDIES.add(name, Study(name, params, measure, **about))
        return measure

    return add


def registered() -> Registry[Study]:
    """The registry, with every file of this room imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return STUDIES
