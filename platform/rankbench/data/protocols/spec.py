"""What a protocol is: numbers that a card gives, and a function that labels every interaction."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from rankbench.core.config import Strict
from rankbench.core.registry import Registry
from rankbench.core.rng import stream
from rankbench.data.interactions import Interactions

# What an interaction is for. The histories of held-out users are shown to a model and never fitted or asked for.
TRAIN, VALID, TEST, VALID_HISTORY, TEST_HISTORY, DROPPED = range(6)


class SplitSpec(Strict):
    """The numbers of a protocol; each protocol adds its own."""

    protocol: str
    seed: int = Field(0, ge=0)


class CarvedValid(SplitSpec):
    """Validation as a random share of each user's train interactions, where the data bring none."""

    valid: float = Field(0.1, gt=0, lt=1, description="share of each user's train interactions")

    def carve(self, data: Interactions, labels: np.ndarray) -> np.ndarray:
        """`labels` with validation taken from train; rounded half up, and never all of a user's."""
        train = np.flatnonzero(labels == TRAIN)
        labels[train[per_user_share(data.user[train], self.valid, stream(self.seed, "split", "valid"))]] = VALID
        return labels


Label = Callable[[Interactions, Any], np.ndarray]


@dataclass(frozen=True)
class Protocol:
    """`label(data, spec)` gives one of the labels above for every interaction; `data` are sorted.

    `refit`: a chosen setting is fitted again on train + valid before test is read. Not so where validation users are
    strangers to the model, as test users are. `self_excluded(spec)`: an item with the id of the user is no candidate.
    """

    name: str
    spec: type[SplitSpec]
    label: Label
    refit: bool = True
    self_excluded: Callable[[Any], bool] = lambda spec: False


_PROTOCOLS: Registry[Protocol] = Registry("protocol")


def protocol(name: str, spec: type[SplitSpec], **about: Any) -> Callable[[Label], Label]:
    """Register the decorated function as the labels of a protocol."""

    def add(function: Label) -> Label:
        _PROTOCOLS.add(name, Protocol(name, spec, function, **about))
        return function

    return add


def protocols() -> Registry[Protocol]:
    """The registry, with every file of this folder imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return _PROTOCOLS


def per_user_share(user: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of round(share · n_u) random interactions of every user u, rounded half up, never all of them."""
    order, rank, counts = shuffled(user, rng)
    take = np.minimum(rounded(share, counts), np.maximum(counts - 1, 0))
    return order[rank < take[user[order]]]


def rounded(share: float, counts: np.ndarray) -> np.ndarray:
    """share · n, rounded half up: also where the share is no binary number, and 0.29 · 50 comes out below 14.5."""
    return np.floor(share * counts + 0.5 + 1e-9)


def shuffled(user: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions grouped by user in random order within each, their rank within the user, and interactions a user."""
    order = np.lexsort((rng.random(len(user)), user))
    return order, *_ranks(user, order)


def in_time(data: Interactions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `shuffled`, with each user's interactions from the earliest on; equal times go by item id."""
    order = np.lexsort((data.item, data.time, data.user))
    return order, *_ranks(data.user, order)


def _ranks(user: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(user) if len(user) else np.zeros(0, np.int64)
    starts = np.cumsum(counts) - counts
    return np.arange(len(user)) - starts[user[order]], counts
