"""Search beyond the range of a parameter where its best value is the last one of the range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rankbench.core.errors import ConfigError
from rankbench.experiment.job import MethodConfig, configure
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.tracking.record import RunRecord

STEPS = 3  # most steps beyond the range of a parameter
NEAR = 0.05  # share of an interval, on its scale, within which a drawn value counts as the end
SHARES = (1.0, 0.5, 0.25)  # of a step, of which the first that the method accepts is tried
STEP = 0.25  # share of an interval, on its scale, by which it is extended

Settings = Sequence[dict[str, Any]]


def edges(arm: ArmSpec, best: dict[str, Any], tried: Settings) -> dict[str, float]:
    """Return the searched numbers whose best value is the smallest or largest that was tried, and not the end of what the
    method accepts, each with the value after it. A value within the share NEAR of an interval from its end is at the end.
    """
    following = {name: _next(arm, best, name, tried) for name in _numeric(arm)}
    return {name: value for name, value in following.items() if value is not None}


def one_step_beyond(arm: ArmSpec, best: dict[str, Any], tried: Settings) -> list[dict[str, Any]]:
    """Return settings that continue the range of each parameter on whose edge the best setting lies, by one value each."""
    following = edges(arm, best, tried)
    return [setting for name, value in following.items() if (setting := best | {name: value}) not in tried]


def ends_of(spec: ExperimentSpec, best: RunRecord, search: Sequence[RunRecord]) -> dict[str, tuple[float, float]]:
    """Return the parameters whose value in the `best` record is at the end of what the `search` of its arm tried, with the
    smallest and the largest value of it.
    """
    arm, values, tried = _tried(spec, best, search)
    bounds = {name: _values(name, arm, tried) for name in edges(arm, values, tried)}
    return {name: (each[0], each[-1]) for name, each in bounds.items()}


def settings_beyond(spec: ExperimentSpec, best: RunRecord, search: Sequence[RunRecord]) -> list[MethodConfig]:
    """Return the settings one step beyond the ranges at whose end the `best` record of a `search` lies."""
    arm, values, tried = _tried(spec, best, search)
    return [configure(arm.method, each, arm.label, arm.label) for each in one_step_beyond(arm, values, tried)]


def _tried(spec: ExperimentSpec, best: RunRecord, search: Sequence[RunRecord]) -> tuple[ArmSpec, dict[str, Any], Settings]:
    """The arm of a record, its setting, and all settings that were tried for the arm on the same dataset."""
    arm = next(arm for arm in spec.arms if arm.label == best.label)
    own = [each for each in search if (each.arm, each.dataset.name) == (best.arm, best.dataset.name)]
    values, *tried = [{name: each.params[name] for name in arm.params if name in each.params} for each in (best, *own)]
    return arm, values, [each for each in tried if arm.searched and set(arm.searched) <= each.keys()]


def _numeric(arm: ArmSpec) -> list[str]:
    return [
        name
        for name, space in arm.params.items()
        if isinstance(space, dict)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for values in space.values() for value in values)
    ]


def _values(name: str, arm: ArmSpec, tried: Settings) -> list[float]:
    """The values of a range that is stated by its values, and those tried; of an interval, its ends and those tried."""
    ((kind, stated),) = arm.params[name].items()
    if kind == "randint":
        stated = [stated[0], stated[1] - 1]  # the upper end is not drawn
    return sorted({*stated, *(value for setting in tried if (value := setting[name]) is not None)})


def _last_two(arm: ArmSpec, best: dict[str, Any], name: str, tried: Settings) -> tuple[float, float] | None:
    """The end of a range at which the best value is, and the value before it; None if it is inside."""
    values = _values(name, arm, tried)
    ((kind, stated),) = arm.params[name].items()
    if kind in ("uniform", "loguniform", "randint"):
        if log := kind == "loguniform":  # a default, such as no decay, need not be on the scale
            values = [value for value in values if value > 0]
        if best[name] not in values:
            return None
        low, high, value, *ends = (math.log(x) if log else x for x in (values[0], values[-1], best[name], *stated))
        if NEAR * (high - low) < min(value - low, high - value):
            return None
        step = STEP * (ends[1] - ends[0])
        end, before = (high, high - step) if high - value <= value - low else (low, low + step)
        return (math.exp(end), math.exp(before)) if log else (end, before)
    if len(values) < 2 or best[name] not in (values[0], values[-1]):
        return None
    return (values[-1], values[-2]) if best[name] == values[-1] else (values[0], values[1])


def _next(arm: ArmSpec, best: dict[str, Any], name: str, tried: Settings) -> float | None:
    """The value after the edge: by the ratio of the last two values or, if one is 0, by their difference; by a part of the step
    if the method does not accept the whole. None if the best value is not at an edge, or if no part is accepted.
    """
    found = _last_two(arm, best, name, tried)
    if found is None:
        return None
    last, before = found
    for share in SHARES:
        # Ranges such as 0.05, 0.1, 0.15 are even; ranges such as 0.1, 0.01, 0.001 are even by their ratio.
        even = before == 0 or last == 0 or last * before < 0 or max(last / before, before / last) < 2
        value = last + share * (last - before) if even else last * (last / before) ** share
        if value <= 0 < last:
            value = last / 2
        value = round(value) if isinstance(best[name], int) else float(f"{value:.6g}")
        try:
            configure(arm.method, best | {name: value}, arm.label)
        except ConfigError:
            continue
        return value if value != last else None
    return None
