"""A random share of every user's interactions: weak generalisation, every user is in the training data."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from rankbench.core.rng import stream
from rankbench.data.interactions import Interactions
from rankbench.data.protocols.spec import TEST, TRAIN, CarvedValid, per_user_share, protocol


class RandomPerUser(CarvedValid):
    protocol: Literal["random-per-user"] = "random-per-user"
    test: float = Field(0.2, gt=0, lt=1, description="share of each user's interactions")


@protocol("random-per-user", RandomPerUser)
def random_per_user(data: Interactions, p: RandomPerUser) -> np.ndarray:
    """A share `test` of each user's interactions, rounded half up, never all; for 0.8/0.1/0.1 use test 0.1, valid 1/9."""
    labels = np.full(len(data), TRAIN, np.int8)
    labels[per_user_share(data.user, p.test, stream(p.seed, "split", "test"))] = TEST
    return p.carve(data, labels)
