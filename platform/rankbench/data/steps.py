"""The preparation steps of a card: thresholds, duplicates, k-core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankbench.core.errors import DataError
from rankbench.data.cards import Step
from rankbench.data.interactions import NO_TIME, Interactions

LAST = np.iinfo(np.int64).max  # a time after all others


def apply(step: Step, data: Interactions, source: str = "prepare") -> Interactions:
    """Apply one preparation step. Raises DataError if a column that it needs is missing, or if no interaction is left."""
    (name,) = step.model_fields_set
    if name == "drop_missing":
        return data  # applied while the files were read: what has no id has no code
    amount = getattr(step, name)
    if name in ("min_value", "duplicates") and data.value is None and amount not in ("first", "last"):
        raise DataError(f"{source}: {name} needs a value column; name it in the card's read.value")
    if name == "timed" and data.time is None:
        raise DataError(f"{source}: timed needs a time column; name it in the card's read.time")
    if name == "timed":
        data = data.keep(data.time != NO_TIME)
    elif name == "min_value":
        data = data.keep(data.value >= amount)
    elif name == "duplicates":
        data = _deduplicate(data, amount)
    else:
        per_user = 1 if name == "min_users_per_item" else amount
        per_item = 1 if name == "min_items_per_user" else amount
        data = data.keep(_core(data, per_user, per_item, repeat=name == "k_core"))
    if len(data) == 0:
        raise DataError(f"{source}: {name}: {amount} leaves no interaction")
    return data


def _deduplicate(data: Interactions, keep: str) -> Interactions:
    """Keep one interaction per pair: the first or last in time (without times, in the file), or that with the largest value.

    Of equal times, the largest value is kept, and of equal values the first, so that the order of rows does not matter.
    """
    row = np.arange(len(data))
    time = row if data.time is None else data.time
    if keep != "last" and data.time is not None:
        time = np.where(time == NO_TIME, LAST, time)  # of a pair, the first one whose time is known
    tie = row if data.value is None else -data.value if keep == "first" else data.value
    keys = (-time, data.value) if keep == "max" else (tie, time)
    order = np.lexsort((row, *keys, data.item, data.user))
    user, item = data.user[order], data.item[order]
    starts = np.r_[True, (user[1:] != user[:-1]) | (item[1:] != item[:-1])]
    chosen = starts if keep == "first" else np.r_[starts[1:], True]
    if data.time is not None and not starts.all():
        data = replace(data, span=_spans(data.time, order, starts))
    return data.keep(np.sort(order[chosen]))


def _spans(time: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The first and the last known time of each interaction's pair; `starts`: where a pair begins in `order`."""
    begins, pair = np.flatnonzero(starts), np.cumsum(starts) - 1
    ordered = time[order]
    first = np.minimum.reduceat(np.where(ordered == NO_TIME, LAST, ordered), begins)
    first[first == LAST] = NO_TIME
    span = np.empty((len(time), 2), np.int64)
    span[order] = np.stack([first, np.maximum.reduceat(ordered, begins)], axis=1)[pair]
    return span


def _core(data: Interactions, per_user: int, per_item: int, repeat: bool) -> np.ndarray:
    """A mask of the interactions whose user and item have enough of them; repeated until nothing changes for a k-core."""
    mask = np.ones(len(data), bool)
    while True:
        users = np.bincount(data.user[mask], minlength=len(data.users))
        items = np.bincount(data.item[mask], minlength=len(data.items))
        kept = mask & (users[data.user] >= per_user) & (items[data.item] >= per_item)
        if not repeat or kept.sum() == mask.sum():
            return kept
        mask = kept
