"""Held-out users: strong generalisation. Validation and test users are never trained on; a model sees a part of their
interactions, the fold-in, and must find the rest.

Fold-in conventions:
- `liang-2018` (Mult-VAE, WWW 2018; the papers on EASE and EDLAE use the same files, Steck 2019 and 2020):
  a held-out user with at least 5 interactions gives floor(share · n) of them as targets, chosen at random; one with
  fewer gives none.
- `every-user`: a user with at least 2 interactions gives round(share · n), at least one and never all of them.
The targets are random ones or, as the next items of a session are, the latest by time. The test users are random ones, or those
of the published test part. The item vocabulary is that of the train users: other items of held-out users are dropped before the
fold-in is chosen.
The chosen configuration is not fitted again on validation users: the papers report the model of the train users.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from rankbench.core.errors import DataError
from rankbench.core.rng import stream
from rankbench.data.interactions import PARTS, Interactions
from rankbench.data.protocols.leave_one_out import require_time
from rankbench.data.protocols.spec import (
    DROPPED,
    TEST,
    TEST_HISTORY,
    TRAIN,
    VALID,
    VALID_HISTORY,
    SplitSpec,
    in_time,
    protocol,
    rounded,
    shuffled,
)

Users = Annotated[int | float, Field(gt=0)]


class HeldOutUsers(SplitSpec):
    protocol: Literal["held-out-users"] = "held-out-users"
    valid: Users = Field(0.1, description="share of users if below 1, otherwise their number")
    test: Users | Literal["published"] = Field(0.1, description="as `valid`, or published: the users of the test part")
    targets: float = Field(0.2, gt=0, lt=1, description="share of a held-out user's interactions to find; the rest is fold-in")
    targets_by: Literal["random", "time"] = Field("random", description="a random share, or the latest interactions")
    convention: Literal["liang-2018", "every-user"] = "liang-2018"
    item_vocabulary: Literal["train", "all"] = Field("train", description="items of the train users, or of all users")

    @property
    def by_time(self) -> bool:
        return self.targets_by == "time"

    @field_validator("valid", "test")
    @classmethod
    def _whole(cls, users: int | float | str) -> int | float | str:
        if not isinstance(users, str) and users >= 1 and users != int(users):
            raise ValueError(f"give a share below 1 or a whole number of users, got {users}")
        return users


@protocol("held-out-users", HeldOutUsers, refit=False)
def held_out_users(data: Interactions, p: HeldOutUsers) -> np.ndarray:
    """Users in random order, published test users last: the last `test` are test users, those before them validation users."""
    if p.by_time:
        require_time(data, "held-out-users with targets by time")
    present = np.unique(data.user)
    published = _published(data) if p.test == "published" else present[:0]
    n_valid, n_test = (len(published) if count == "published" else _number(count, len(present)) for count in (p.valid, p.test))
    if n_valid + n_test >= len(present):
        raise DataError(f"held-out-users: {n_valid} + {n_test} users are held out of {len(present)}; none is left to train on")
    shuffle = np.r_[stream(p.seed, "split", "users").permutation(np.setdiff1d(present, published)), published]
    group = np.full(len(data.users), TRAIN, np.int8)
    group[shuffle[len(present) - n_test :]] = TEST
    group[shuffle[len(present) - n_test - n_valid : len(present) - n_test]] = VALID
    labels = group[data.user]
    if p.item_vocabulary == "train":
        labels[~np.isin(data.item, data.item[labels == TRAIN])] = DROPPED
    for held_out, history in ((VALID, VALID_HISTORY), (TEST, TEST_HISTORY)):
        rows = np.flatnonzero(labels == held_out)
        if p.by_time:
            order, rank, counts = in_time(data.keep(rows), stream(p.seed, "split", "ties", held_out))
            rank = counts[data.user[rows[order]]] - 1 - rank
        else:
            order, rank, counts = shuffled(data.user[rows], stream(p.seed, "split", "fold-in", held_out))
        labels[rows[order[rank >= _targets(p, counts)[data.user[rows[order]]]]]] = history
    return labels


def _published(data: Interactions) -> np.ndarray:
    """The users of the test part."""
    of_test = data.part == PARTS.index("test")
    users = np.unique(data.user[of_test])
    both = len(np.intersect1d(users, data.user[~of_test]))
    if both or not len(users):
        found = f"{both:,} users of the test part are also in others" if both else "the data have no test part"
        raise DataError(f"split.test is published, but {found}")
    return users


def _number(count: Users, users: int) -> int:
    return round(count * users) if count < 1 else int(count)


def _targets(p: HeldOutUsers, counts: np.ndarray) -> np.ndarray:
    """The number of targets of users with these numbers of interactions."""
    if p.convention == "liang-2018":
        return np.where(counts >= 5, np.floor(p.targets * counts + 1e-9), 0)
    return np.where(counts >= 2, np.clip(rounded(p.targets, counts), 1, counts - 1), 0)
