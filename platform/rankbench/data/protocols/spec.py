"""Split protocols: parameters that a card gives, and a function that labels every interaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from rankbench.core.config import Strict
from rankbench.core.errors import require, shown
from rankbench.core.plugins import exits_are_errors
from rankbench.core.registry import Registry
from rankbench.core.rng import stream
from rankbench.data.interactions import Interactions

# The purpose of an interaction. The histories of held-out users are scored from, and are neither fitted on nor targets.
TRAIN, VALID, TEST, VALID_HISTORY, TEST_HISTORY, DROPPED = range(6)

ColdUsers = Literal["drop", "popularity", "keep"]


class SplitSpec(Strict):
    """The parameters of a protocol; each protocol adds its own."""

    protocol: str
    seed: int = Field(0, ge=0)
    rank_valid: bool = Field(
        False,
        description="whether a user's validation items stay candidates at test time if the model was fitted on train alone, as "
        "in programs that mask no other items than those of train",
    )
    cold_users: ColdUsers = Field(
        "drop",
        description="users with targets whose history is empty, so that a model knows nothing of them. drop: they are left "
        "out of all means; popularity: the most popular items are recommended to them, whatever the method; keep: each method "
        "ranks for them, or popularity if the method has the same score for every item",
    )

    @property
    def by_time(self) -> bool:
        """Whether every interaction needs a time."""
        return False

    def timed(self, data: Interactions) -> Interactions:
        """The data with the time at which each pair counts."""
        return data

    def counts(self, data: Interactions) -> dict[str, int]:
        """What the protocol counts beside the sizes of the parts; the `part` of `data` is the label."""
        return {}


class InTime(SplitSpec):
    """Parameters of a protocol that holds out what is later. Only the first interaction of a pair can be found without being
    known already, so a pair counts at that time, whichever of its interactions a `duplicates` step kept.
    """

    repeats: Literal["drop", "keep"] = Field(
        "drop",
        description="pairs with interactions before and after the cut. drop: they count when they were first met, and are no "
        "targets; keep: they count when they were last met, and are targets that the model does not know",
    )

    @property
    def by_time(self) -> bool:
        return True

    def timed(self, data: Interactions) -> Interactions:
        return data if data.span is None else replace(data, time=data.span[:, 0 if self.repeats == "drop" else 1])

    def counts(self, data: Interactions) -> dict[str, int]:
        if data.span is None:
            return {}
        begin = self.begin(data)
        name = "known_test_pairs_dropped" if self.repeats == "drop" else "known_test_pairs_kept"
        return {name: int(((data.span[:, 0] < begin) & (begin <= data.span[:, 1])).sum())}

    def begin(self, data: Interactions) -> np.ndarray | int:
        """The time when test begins, of all interactions or of each one."""
        return data.time[data.part == TEST].min()


class CarvedValid(SplitSpec):
    """Parameters of a protocol that takes a random share of each user's train interactions for validation."""

    valid: float = Field(0.1, gt=0, lt=1, description="share of each user's train interactions")

    def carve(self, data: Interactions, labels: np.ndarray) -> np.ndarray:
        """Label a share of each user's train interactions as validation, rounded half up and never all of them."""
        train = np.flatnonzero(labels == TRAIN)
        labels[train[per_user_share(data.user[train], self.valid, stream(self.seed, "split", "valid"))]] = VALID
        return labels


Label = Callable[[Interactions, Any], np.ndarray]


@dataclass(frozen=True)
class Protocol:
    """A protocol: `label(data, spec)` returns one of the labels above for every interaction of the sorted `data`.

    `refit`: the chosen configuration is fitted again on train + valid before it is tested; false if validation users are
    held out, as test users are. `self_excluded(spec)`: whether an item with the user's own id is not a candidate.
    """

    name: str
    spec: type[SplitSpec]
    label: Label
    refit: bool = True
    self_excluded: Callable[[Any], bool] = lambda spec: False


def checked_labels(protocol: Protocol, data: Interactions, spec: SplitSpec) -> np.ndarray:
    """Return the label of every interaction. Raises ConfigError if the protocol, which may be a plugin's, returns none."""
    source = f"protocol {protocol.name}"
    with exits_are_errors(source):
        labels: Any = protocol.label(data, spec)
    if isinstance(labels, np.ndarray):
        found = f"an array of shape {labels.shape} and type {labels.dtype}"
        right = labels.shape == (len(data),) and labels.dtype.kind in "iu" and bool(np.isin(labels, range(DROPPED + 1)).all())
    else:
        found, right = shown(labels), False
    require(
        right,
        f"{source}: returned {found}; expected an array of {len(data):,} whole numbers, each one of TRAIN, VALID, TEST, "
        "VALID_HISTORY, TEST_HISTORY and DROPPED; rankbench check FILE tests it",
    )
    return labels


_PROTOCOLS: Registry[Protocol] = Registry("protocol")


def protocol(name: str, spec: type[SplitSpec], **about: Any) -> Callable[[Label], Label]:
    """Register the decorated function as the `label` of a protocol."""
    return _PROTOCOLS.decorator(name, lambda label: Protocol(name, spec, label, **about))


def protocols() -> Registry[Protocol]:
    """The registry, with every file of this folder imported."""
    return _PROTOCOLS.filled_from("rankbench.data.protocols")


def per_user_share(user: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of round(share · n_u) random interactions of every user u, rounded half up and never all of them."""
    order, rank, counts = shuffled(user, rng)
    take = np.minimum(rounded(share, counts), np.maximum(counts - 1, 0))
    return order[rank < take[user[order]]]


def rounded(share: float, counts: np.ndarray) -> np.ndarray:
    """share · n, rounded half up, even if floating point puts it below the half, as 0.29 · 50 below 14.5."""
    return np.floor(share * counts + 0.5 + 1e-9)


def shuffled(user: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions grouped by user, in random order within each; their rank within the user; the interactions per user."""
    order = np.lexsort((rng.random(len(user)), user))
    return order, *_ranks(user, order)


def in_time(data: Interactions, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `shuffled`, with each user's interactions in order of time. Equal times, as of data with days, are in random order:
    the order of ids would favour new or rare items.
    """
    order = np.lexsort((rng.random(len(data.user)), data.time, data.user))
    return order, *_ranks(data.user, order)


def _ranks(user: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(user) if len(user) else np.zeros(0, np.int64)
    starts = np.cumsum(counts) - counts
    return np.arange(len(user)) - starts[user[order]], counts
