"""A fit by gradient steps whose loss grows, or whose scores are no numbers: the learning rate is then usually too high."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rankbench.core.errors import NumericalError
from rankbench.fitting.drive import Row

RATE = "learning_rate"
GROWTH = 0.1  # of the size of the first loss; less may be noise
ROUNDS = 3  # number of last iterations, none of which may be lower than the first


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
