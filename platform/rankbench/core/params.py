"""Parameters of methods, losses, encoders and studies: frozen dataclasses whose fields say what they are, which values papers
search, and which values are possible.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import ValidationError

from rankbench.core.config import adapter, require_numbers
from rankbench.core.errors import ConfigError, require, shown
from rankbench.core.registry import nearest
from rankbench.core.wording import wording

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")

SPREAD = 10.0  # ratio of the bounds from which on a range is searched on a logarithmic scale
FROM_ZERO = 1e-3  # on a logarithmic scale, a range from 0 begins at this share of its upper bound


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, which are drawn on a logarithmic scale if the bounds are a factor of 10 or more apart.

    With `log`, a range from 0 is drawn so, too, from a thousandth of `high` on. `published`: whether a paper searches it.
    `exponents`: whether the text has 1e-4 in place of 0.0001.
    """

    low: float
    high: float
    log: bool = False
    published: bool = True
    exponents: bool = False

    def __str__(self) -> str:
        text = f"{_written(self.low, self.exponents)} to {_written(self.high, self.exponents)}"
        scale = ", log scale" * self.log
        if self.log and self.low == 0:
            scale += f" from {_written(FROM_ZERO * self.high, self.exponents)}"
        return text + scale + "; not published" * (not self.published)

    def space(self, field: dataclasses.Field[Any]) -> dict[str, list[Any]]:
        """Return how to draw a value of the parameter `field`, as in an experiment file."""
        if field.type in (int, "int"):
            return {"choice": _whole_numbers(int(self.low), int(self.high))}
        low, high = float(self.low), float(self.high)
        if low == 0 and self.log:
            low = FROM_ZERO * high
        return {"loguniform" if low > 0 and high / low >= SPREAD else "uniform": [low, high]}


class Choice:
    """Several values, each of which is as likely to be drawn."""

    def __init__(self, *values: Any):
        self.values = values

    def __str__(self) -> str:
        return ", ".join(map(_written, self.values))

    def space(self, field: dataclasses.Field[Any]) -> dict[str, list[Any]]:
        whole = isinstance(field.default, bool | int | str)
        return {"choice": [value if whole else float(value) for value in self.values]}


@dataclasses.dataclass(frozen=True)
class Fixed:
    """What is not searched: the usual value, or a text about it, such as "not published"."""

    value: Any

    def __str__(self) -> str:
        return _written(self.value)

    def space(self, field: dataclasses.Field[Any]) -> None:
        return None


def param(
    default: Any,
    help: str,
    search: Range | Choice | Fixed | None = None,
    used: Callable[[Any], bool] | None = None,
    late: Mapping[str, str] | None = None,
    rests: bool = False,
    **bounds: float,
) -> Any:
    """Return a parameter field with its default, its description, the values that its papers search, and its bounds.

    `used(p)` says whether a fit with the parameters `p` reads this one; without it, every fit does. `late` is for the number of
    the epoch in which a part of the method begins: what a shorter fit lacks, by the objective of training. With `rests`, the
    model is not trained in that epoch, and meets the part in the next one. The bounds `gt`, `ge`, `lt` and `le` mean the same
    as in pydantic. The description states them, and `Params` checks them.
    """
    known = search is None or isinstance(search, Range | Choice | Fixed)
    require(known, f"param: the values to search are Range(low, high), Choice(a, b) or Fixed(a), got {shown(search)}")
    head, semicolon, rest = help.partition(";")
    described = f"{head}, {_interval(bounds)}{semicolon}{rest}" if bounds else help
    about: dict[str, Any] = {"help": described, "search": "" if search is None else str(search), "values": search}
    about |= {"bounds": bounds, "used": used, "late": late or {}, "rests": rests}
    return dataclasses.field(default=default, metadata=about)


@dataclasses.dataclass(frozen=True)
class Params:
    """Base of parameter dataclasses. Raises ConfigError if a parameter is outside of the bounds that its `param` states."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, bounds = getattr(self, field.name), field.metadata.get("bounds", {})
            inside = value is None or all(getattr(operator, name)(value, bound) for name, bound in bounds.items())
            verb = "lie" if len(bounds) > 1 else "be"
            require(inside, f"{field.name} must {verb} {_interval(bounds)}, got {value}")


def used_names(p: Any) -> tuple[str, ...]:
    """Return the names of the parameters in the dataclass `p` that a fit with them reads."""
    fields = dataclasses.fields(p)
    return tuple(field.name for field in fields if (used := field.metadata.get("used")) is None or used(p))


def space_of(field: dataclasses.Field[Any]) -> dict[str, list[Any]] | None:
    """Return how to draw a value of a parameter, as in an experiment file, or None if it is not searched."""
    values = field.metadata.get("values")
    return values.space(field) if values else None


def parameters(cls: type[P], values: Mapping[str, Any], source: str) -> P:
    """Return a parameter dataclass from plain values. Raises ConfigError naming `source` and the field if a type is wrong.

    NaN and infinity are refused, since they are meaningful for no parameter.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            known = f"; known: {', '.join(fields)}" if fields else " (it has no parameters)"
            raise ConfigError(f"{source}: unknown parameter {shown(key)}{nearest(key, fields) or known}")
    try:
        result: P = adapter(cls).validate_python(dict(values))
        for name in fields:
            value = getattr(result, name)
            require_numbers(values.get(name), value, name)
            require(not isinstance(value, float) or math.isfinite(value), f"{name} must be finite, got {value}")
        return result
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise ConfigError(f"{source}: {wording(problems[0], problems)}") from None


def _interval(bounds: Mapping[str, float]) -> str:
    """Return the bounds as text: "> 0", "≥ 1" or "in (0, 1]"."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    if len(bounds) < 2:
        return "".join(f"{signs[name]} {bound}" for name, bound in bounds.items())
    low = f"({bounds['gt']}" if "gt" in bounds else f"[{bounds['ge']}"
    return f"in {low}, " + (f"{bounds['lt']})" if "lt" in bounds else f"{bounds['le']}]")


def _written(value: Any, exponents: bool = False) -> str:
    if not isinstance(value, float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if exponents or 0 < abs(value) < 1e-5:
        return np.format_float_scientific(value, trim="-", exp_digits=1)
    return np.format_float_positional(value, trim="-")


def _whole_numbers(low: int, high: int) -> list[int]:
    """All of them if they are few, otherwise each about twice the one before it."""
    if high - low < SPREAD:
        return list(range(low, high + 1))
    numbers, n = [low], max(low, 1)
    while 2 * n < high:
        n *= 2
        numbers.append(n)
    return [*numbers, high]
