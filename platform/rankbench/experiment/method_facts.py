"""What lists and completions say of the methods: names, titles, families, and parameters with their values.

Importing all methods takes seconds, most of them for PyTorch. The facts are therefore kept in the data folder until the code, a
plugin or the installed extras change.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from rankbench.core.code import code_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import RankbenchError
from rankbench.core.extras import installed, missing_packages
from rankbench.core.files import write_json
from rankbench.core.params import Choice, Fixed
from rankbench.core.patterns import Families
from rankbench.core.plugins import load_configured

if TYPE_CHECKING:
    from rankbench.fitting.method import Method


@dataclass(frozen=True)
class ParamFacts:
    """A parameter: its default, the range that is searched, its meaning, and the values that its type or a paper lists."""

    name: str
    default: bool | int | float | str | None
    search: str
    help: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class MethodFacts:
    """A method. `own` are the parameters that are shown first; `encoders` has the parameters of each encoder it trains."""

    name: str
    title: str
    source: str
    reason: str
    families: tuple[str, ...]
    own: tuple[str, ...]
    params: tuple[ParamFacts, ...]
    encoders: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Kept:
    made_by: str
    methods: dict[str, MethodFacts]


def method_facts() -> dict[str, MethodFacts]:
    """Return the facts of every method by its name, in the order of the registry; without PyTorch, those of the solvers."""
    load_configured()
    path = Environment.from_env().data / "methods.json"
    made_by = f"{code_fingerprint()} {installed('train')}"
    with suppress(OSError, ValueError):
        kept = TypeAdapter(_Kept).validate_json(path.read_bytes())
        if kept.made_by == made_by:
            return kept.methods
    from rankbench.experiment.methods import registered

    found = {each.name: facts_of(each) for each in registered()}
    with suppress(RankbenchError, OSError, TypeError, ValueError):
        write_json(path, dataclasses.asdict(_Kept(made_by, found)))
    return found


def facts_of(method: Method) -> MethodFacts:
    return MethodFacts(
        name=method.name,
        title=method.title,
        source=method.source,
        reason=method.reason,
        families=tuple(method.families),
        own=tuple(method.own),
        params=tuple(
            ParamFacts(
                each.name,
                None if each.default is dataclasses.MISSING else each.default,
                each.metadata.get("search", ""),
                each.metadata.get("help", ""),
                _values(each),
            )
            for each in method.fields()
        ),
        encoders={name: tuple(sorted(params)) for name, params in method.by_encoder().items()},
    )


def families_of(methods: Iterable[MethodFacts | Method]) -> Families:
    """Every family of these methods, with its members."""
    members: dict[str, list[str]] = defaultdict(list)
    for each in methods:
        for family in each.families:
            members[family].append(each.name)
    return dict(members)


def without_losses() -> str:
    """Return how to install what the losses need if it is missing, otherwise an empty string."""
    return "" if installed("train") else f"losses trained by gradient steps are left out; they need {missing_packages('train')}"


def _values(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the values that the type of a parameter allows, or those that the papers tried, and its default."""
    annotation, found = str(field.type), [] if field.default is None else [field.default]
    if literal := re.search(r"Literal\[(.*?)\]", annotation):
        with suppress(ValueError, SyntaxError):  # a plugin's, by the names of its values
            found += ast.literal_eval(f"({literal[1]},)")
    elif annotation == "bool":
        found += [True, False]
    elif isinstance(values := field.metadata.get("values"), Choice):
        found += values.values
    elif isinstance(values, Fixed) and " " not in str(values):  # no sentence
        found.append(values.value)
    return tuple(dict.fromkeys(str(each).lower() if isinstance(each, bool) else str(each) for each in found))
