"""Synthetic data of any size with real tastes, so that a better model scores better.

Each user has a mixture over a few latent tastes, and so has each item; a user interacts with item i with probability
proportional to popularity_i · exp(strength · affinity_ui). Activity and popularity follow power laws.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rankbench.core.memory import require_memory
from rankbench.core.rng import stream
from rankbench.data.cards import Generator

_BLOCK_CELLS = 1 << 24  # users x items held at once: memory does not grow with the dataset


def generate(spec: Generator) -> pa.Table:
    """A table with the columns user, item (int64), one row per interaction and no pair twice; the same spec gives the same
    rows. Raises StorageError, before any work, if there is not enough free memory.
    """
    require_memory(_memory(spec), f"the built-in data of {spec.users:,} users and {spec.items:,} items")
    rng = stream(spec.seed, "synthetic", "world")
    popularity = (1.0 + np.arange(spec.items)) ** -spec.popularity_exponent
    # Tastes are independent of popularity, otherwise the most popular items alone would explain everything.
    item_taste = rng.dirichlet(np.full(spec.tastes, 0.3), spec.items).astype(np.float32)
    user_taste = rng.dirichlet(np.full(spec.tastes, 0.3), spec.users).astype(np.float32)
    tail = rng.pareto(spec.activity_exponent - 1.0, spec.users) + 0.5
    activity = np.clip(np.rint(tail * spec.interactions_per_user / tail.mean()), 5, max(spec.items // 2, 1)).astype(int)
    log_popularity = np.log(popularity).astype(np.float32)

    users, items = [], []
    block = max(1, _BLOCK_CELLS // spec.items)
    for start in range(0, spec.users, block):
        stop = min(start + block, spec.users)
        affinity = user_taste[start:stop] @ item_taste.T * np.float32(spec.tastes * spec.taste_strength / 2)
        # With Gumbel noise on the log-weights, the n largest are a sample of n items without replacement.
        noise = -np.log(
            -np.log(stream(spec.seed, "synthetic", "draw", start).random(affinity.shape, np.float32) + 1e-12) + 1e-12
        )
        keys = affinity + log_popularity + noise.astype(np.float32)
        most = int(activity[start:stop].max())
        top = np.argpartition(-keys, most - 1, axis=1)[:, :most]
        ranked = np.take_along_axis(top, np.argsort(-np.take_along_axis(keys, top, 1), axis=1, kind="stable"), 1)
        chosen = np.arange(most) < activity[start:stop, None]
        users.append(np.repeat(np.arange(start, stop), activity[start:stop]))
        items.append(ranked[chosen])
    # Item ids in random order, so that an id carries no information on popularity and ties by id favour no item.
    names = rng.permutation(spec.items)
    return pa.table({"user": np.concatenate(users).astype(np.int64), "item": names[np.concatenate(items)].astype(np.int64)})


def _memory(spec: Generator) -> int:
    """Rough peak memory in bytes: tastes as float64 and float32, five arrays per block, rows in pieces and concatenated."""
    rows = spec.users * max(5.0, min(spec.interactions_per_user, spec.items / 2))
    tastes = 12 * spec.tastes * (spec.users + spec.items)
    block = 24 * min(spec.users * spec.items, max(_BLOCK_CELLS, spec.items))
    return int(tastes + block + 32 * rows)
