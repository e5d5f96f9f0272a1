"""One point in time for all users: train on what is before it, test on what is after it."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
from pydantic import Field

from rankbench.core.errors import DataError
from rankbench.data.interactions import Interactions
from rankbench.data.protocols.leave_one_out import require_time
from rankbench.data.protocols.spec import DROPPED, TEST, TRAIN, VALID, CarvedValid, InTime, protocol


class Temporal(CarvedValid, InTime):
    """`cold_items`: how to treat held-out interactions with an item that no train interaction has. `keep`: they remain
    targets, although no model can hit them; `drop`: they are left out.
    """

    protocol: Literal["temporal"] = "temporal"
    test: float = Field(0.2, gt=0, lt=1, description="share of all interactions, the latest")
    valid_by: Literal["random", "time"] = Field("random", description="a random share of each user's train, or its latest")
    cold_items: Literal["keep", "drop"] = "keep"


@protocol("temporal", Temporal)
def temporal(data: Interactions, p: Temporal) -> np.ndarray:
    """Interactions at or after the (1 − test) quantile of time are for test, so that equal times are on one side."""
    require_time(data, "the temporal protocol")
    labels = np.full(len(data), TRAIN, np.int8)
    labels[_latest(data.time, p.test, "test")] = TEST
    if p.valid_by == "random":
        p.carve(data, labels)
    else:
        train = np.flatnonzero(labels == TRAIN)
        labels[train[_latest(data.time[train], p.valid, "valid")]] = VALID
    if p.cold_items == "drop":
        labels[~np.isin(data.item, data.item[labels == TRAIN])] = DROPPED
    return labels


def _latest(time: np.ndarray, share: float, name: str) -> np.ndarray:
    """A mask of the interactions from the (1 − share) quantile of time on; it may be empty."""
    n = int(Fraction(str(share)) * len(time))  # exact: 0.29 of 100 is 29, but 28 in floating point
    chosen = time >= np.sort(time)[-n] if n else np.zeros(len(time), bool)
    if chosen.all():
        raise DataError(f"temporal protocol: all interactions are at the time when {name} begins; the times are too coarse")
    return chosen
