"""Search beyond the range of a parameter where its best value is the last one of the range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbench.core.errors import ConfigError
from rankbench.experiment.job import configure
from rankbench.schema.experiment import ArmSpec


def edges(arm: ArmSpec, best: dict[str, Any], tried: Sequence[dict[str, Any]]) -> list[str]:
    """Return the searched numbers whose best value is the smallest or largest that was tried, and not the end of what the
    method accepts.
    """
    found = []
    for name in _numeric(arm):
        values = _values(name, arm, tried)
        if len(values) > 1 and best[name] in (values[0], values[-1]) and _next(arm, best, name, values) is not None:
            found.append(name)
    return found


def one_step_beyond(arm: ArmSpec, best: dict[str, Any], tried: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return settings that continue the range of each parameter on whose edge the best setting lies, by one value each."""
    result = []
    for name in edges(arm, best, tried):
        value = _next(arm, best, name, _values(name, arm, tried))
        if value is not None and (setting := best | {name: value}) not in tried:
            result.append(setting)
    return result


def _numeric(arm: ArmSpec) -> list[str]:
    return [
        name
        for name, space in arm.params.items()
        if isinstance(space, dict)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for values in space.values() for value in values)
    ]


def _values(name: str, arm: ArmSpec, tried: Sequence[dict[str, Any]]) -> list[float]:
    """The values of a range that is stated by its values, and those tried; of an interval, its ends and those tried."""
    ((kind, stated),) = arm.params[name].items()
    if kind == "randint":
        stated = [stated[0], stated[1] - 1]  # the upper end is not drawn
    return sorted({*stated, *(setting[name] for setting in tried)})


def _next(arm: ArmSpec, best: dict[str, Any], name: str, values: Sequence[float]) -> float | None:
    """The value after the edge: by the ratio of the last two values or, if one is 0, by their difference. None if the method
    does not accept it.
    """
    last, before = (values[-1], values[-2]) if best[name] == values[-1] else (values[0], values[1])
    whole = isinstance(best[name], int)
    # Ranges such as 0.05, 0.1, 0.15 are even; ranges such as 0.1, 0.01, 0.001 are even by their ratio.
    if before == 0 or last == 0 or last * before < 0:
        value = last + (last - before)
    else:
        ratio = last / before
        value = last * ratio if max(ratio, 1 / ratio) >= 2 else last + (last - before)
        if value <= 0 < last:
            value = last / 2
    value = round(value) if whole else float(f"{value:.6g}")
    try:
        configure(arm.method, best | {name: value}, arm.label)
    except ConfigError:
        return None
    return value if value != last else None
