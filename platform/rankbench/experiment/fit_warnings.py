"""What a user should know of a fit: its loss grew, its scores are no numbers, or what was asked for had no effect.

The loss of a fit by gradient steps grows, and its scores are no numbers, where the learning rate is too high.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rankbench.core.errors import NumericalError
from rankbench.experiment.job import MethodConfig
from rankbench.experiment.methods import method
from rankbench.fitting.drive import Row
from rankbench.fitting.method import Direct

RATE = "learning_rate"
GROWTH = 0.1  # of the size of the first loss; less may be noise
ROUNDS = 3  # number of last iterations, none of which may be lower than the first


def fit_warnings(name: str, params: Mapping[str, Any], curve: Sequence[Row], iterations: int | None, dtype: str) -> list[str]:
    """Return a sentence for each of them, for a fit of the method called `name` whose model is that of so many iterations."""
    return [each for each in (divergence(curve, params), unstarted(name, params, iterations), own_type(name, dtype)) if each]


def divergence(curve: Sequence[Row], params: Mapping[str, Any]) -> str | None:
    """Return a sentence on a fit whose loss rose and stayed higher than after its first iteration; None for any other.

    Some losses weight or choose their negatives anew in each epoch, and may rise while the ranking improves: hence "may".
    """
    losses = [row["loss"] for row in curve if math.isfinite(row.get("loss", math.nan))]
    if RATE not in params or len(losses) <= ROUNDS:
        return None
    first, last, rate = losses[0], losses[-1], params[RATE]
    if min(losses[-ROUNDS:]) <= first + GROWTH * abs(first):
        return None
    advice = f"{RATE}={rate:g} may be too high; try {RATE}={rate / 10:g}"
    return f"the loss rose from {first:.4g} to {last:.4g} in {len(losses)} epochs: {advice}"


def unstarted(name: str, params: Mapping[str, Any], iterations: int | None) -> str | None:
    """Return a sentence if the model is from an epoch before the first in which a part of the method works."""
    for field in method(name).fields():
        late, first = field.metadata.get("late", {}).get(params.get("objective")), params.get(field.name)
        if late and first is not None and iterations is not None and first + field.metadata["rests"] > iterations:
            return f"{field.name}={first}, but the model is that of epoch {iterations}: {late}"
    return None


def unread(config: MethodConfig, given: Iterable[str]) -> list[str]:
    """Return a sentence on each given parameter that the fit does not read, such as `n_negatives` of a loss over all items, or
    that changes no ranking.
    """
    spec, params, why = config.spec, config.params, f"{config.method} with these parameters does not read it"
    reasons = {name: why for name in given if name not in config.used}
    for field in (each for each in spec.fields() if each.name in {*given} & {*spec.redundant}):
        usual = dataclasses.replace(params, **{field.name: field.default})
        if usual != params and spec.identity_of(usual) == spec.identity_of(params):
            reasons.setdefault(field.name, spec.reason)
    values = {field.name: field.default for field in spec.fields()} | config.flat  # one of another encoder is at its default
    return [f"{name}={values[name]} has no effect: {reason}" for name, reason in reasons.items()]


def own_type(name: str, dtype: str) -> str | None:
    """Return a sentence if a type was asked for and the method computes in one of its own."""
    if dtype == "float32" or not isinstance(method(name), Direct):
        return None
    return f"dtype={dtype} has no effect: {name} computes in a type of its own, and the model is that of float32"


@contextmanager
def rate_is_named(params: Mapping[str, Any]) -> Iterator[None]:
    """Name the learning rate in a NumericalError of a fit that has one. Too long vectors may be found by their loss or, before
    the next one is known, by their scores.
    """
    try:
        yield
    except NumericalError as error:
        if RATE not in params or RATE in str(error):
            raise
        rate, what = params[RATE], str(error).partition(";")[0]
        raise NumericalError(f"{what}: {RATE}={rate:g} is probably too high; try {RATE}={rate / 10:g}") from error
