"""Leave-one-out: each user's last interaction is for test, the one before it for validation."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rankbench.core.errors import DataError
from rankbench.core.rng import stream
from rankbench.data.interactions import NO_TIME, Interactions
from rankbench.data.protocols.spec import TEST, TRAIN, VALID, InTime, in_time, protocol, shuffled


class LeaveOneOut(InTime):
    protocol: Literal["leave-one-out"] = "leave-one-out"
    order: Literal["time", "random"] = "time"

    @property
    def by_time(self) -> bool:
        return self.order == "time"

    def counts(self, data: Interactions) -> dict[str, int]:
        if not self.by_time:
            return {}
        valid = data.part == VALID
        tied = data.time[valid] == self.begin(data)[valid]
        return super().counts(data) | {"tied_test_users": int(tied.sum())}

    def begin(self, data: Interactions) -> np.ndarray:
        begin = np.full(len(data.users), np.iinfo(np.int64).max)  # never
        begin[data.user[data.part == TEST]] = data.time[data.part == TEST]
        return begin[data.user]


@protocol("leave-one-out", LeaveOneOut)
def leave_one_out(data: Interactions, p: LeaveOneOut) -> np.ndarray:
    """The last one by time (of equal times, a random one), or a random one of all. All interactions of a user with
    fewer than three stay in train. Even in time order, a model trains on interactions of others that are later than a
    user's test interaction; the temporal protocol has no such leak.
    """
    if p.by_time:
        require_time(data, "leave-one-out by time")
        order, rank, counts = in_time(data, stream(p.seed, "split", "ties"))
    else:
        order, rank, counts = shuffled(data.user, stream(p.seed, "split", "leave-one-out"))
    n = counts[data.user[order]]
    labels = np.full(len(data), TRAIN, np.int8)
    labels[order[(n >= 3) & (rank == n - 2)]] = VALID
    labels[order[(n >= 3) & (rank == n - 1)]] = TEST
    return labels


def require_time(data: Interactions, what: str) -> None:
    """Raise DataError unless every interaction has a time."""
    if data.time is None:
        raise DataError(f"{what} needs a time column; name it in the card's read.time")
    missing = int((data.time == NO_TIME).sum())
    if missing:
        raise DataError(f"{what}: {missing} interactions have no time; the step `timed: true` drops them")
