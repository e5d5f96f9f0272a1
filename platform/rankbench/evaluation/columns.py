"""Ranking by models whose weights are too large for one memory: each worker ranks all users among a block of items.

`ranking.rank` does the same in one process, with the same kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import slices
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import (
    BLOCK_USERS,
    ColumnRecommender,
    Ranking,
    State,
    Users,
    count,
    families_of,
    held,
    merge,
    scan_part,
)
from rankbench.fitting.executors import BlockMap

_Data = tuple[list[ColumnRecommender], Holdout, int, bool]  # models, holdout, k, auc


def rank_by_columns_on(
    executor: BlockMap,
    models: Sequence[ColumnRecommender],
    holdout: Holdout,
    k: int,
    columns: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Ranking]:
    """Return what `rank` returns, bit for bit. Each block of `columns` items is ranked by a worker of `executor`, which must be
    able to hold it.

    A worker returns the top k of its block and the next item. These are merged here by score and then by item, so that the
    order in which they arrive has no effect. Models and `holdout` are sent once. `progress(done, total)` counts blocks.
    """
    users = Users(holdout)
    states = [State(model, users, k, auc) for model in models]
    blocks = slices(0, holdout.target.shape[1], columns)
    data = executor.put((list(models), holdout, k, auc))
    total = (1 + auc) * len(blocks)
    for done, (index, tops) in enumerate(executor.map(_top_of_block, blocks, data), start=1):
        for state, (items, scores, of_targets) in zip(states, tops, strict=True):
            _merge_top(state.items, state.scores, items, scores)
            if auc:
                state.target_scores[_inside(users, blocks[index])] = of_targets
        progress(done, total)
    if auc:
        known = executor.put([state.target_scores for state in states])
        for done, (_, counts) in enumerate(executor.map(_above_in_block, blocks, data, known), start=1):
            for state, above in zip(states, counts, strict=True):
                state.above += above
            progress(len(blocks) + done, total)
    return [state.ranking(users) for state in states]


def _top_of_block(block: slice, data: _Data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each model the top k + 1 of the block's items for all users, and the scores of the targets among them."""
    states = _scanned(block, data, merge)
    inside = _inside(Users(data[1]), block) if data[3] else slice(0)
    return [(state.items, state.scores, state.target_scores[inside]) for state in states]


def _above_in_block(block: slice, data: _Data, target_scores: list[np.ndarray]) -> list[np.ndarray]:
    return [state.above for state in _scanned(block, data, count, target_scores)]


def _scanned(block: slice, data: _Data, use: Callable[..., None], target_scores: Sequence[np.ndarray] = ()) -> list[State]:
    models, holdout, k, auc = data
    users, workspace = Users(holdout), threading.local()
    states = [State(model, users, min(k, block.stop - block.start), auc) for model in models]
    for state, scores in zip(states, target_scores, strict=False):
        state.target_scores = scores
    for family in families_of(states):
        holder = held(family[0].model, block)
        for part in slices(0, len(users.rows), BLOCK_USERS):
            scan_part(holder, family, use, block, users, part, workspace)
    return states


def _inside(users: Users, block: slice) -> np.ndarray:
    """Return which targets of the ranked users are in the block's columns."""
    items = users.holdout.target[users.rows].indices
    return (items >= block.start) & (items < block.stop)


@numba.njit(cache=True)
def _merge_top(items: np.ndarray, scores: np.ndarray, other_items: np.ndarray, other_scores: np.ndarray) -> None:
    """Merge another top list into the first, row by row. Both are sorted, best first; ties go to the lower item."""
    k = items.shape[1]
    for u in range(items.shape[0]):
        own_items, own_scores = items[u].copy(), scores[u].copy()
        a = b = 0
        for position in range(k):
            if b < other_items.shape[1] and other_items[u, b] >= 0:
                item, score = other_items[u, b], other_scores[u, b]
                better = own_items[a] < 0 or score > own_scores[a] or (score == own_scores[a] and item < own_items[a])
            else:
                better = False
            if better:
                items[u, position], scores[u, position] = other_items[u, b], other_scores[u, b]
                b += 1
            else:
                items[u, position], scores[u, position] = own_items[a], own_scores[a]
                a += 1
