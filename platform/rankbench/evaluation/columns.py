"""Ranking of all items for every user, with items as the outer loop, for weights too large for memory.

The loops of `ranking.rank` are exchanged, with the same kernels: each block of items is read once for all users, whose top k
stay in memory. Blocks come in increasing item id, so that ties go to the lower id here, too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol

import numba
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import require
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import (
    BLOCK_USERS,
    Ranking,
    _count,
    _families,
    _merge,
    _passes,
    _scan_part,
    _State,
    _Users,
    slices,
)
from rankbench.fitting.executors import BlockMap
from rankbench.fitting.recommenders import Recommender


class ColumnRecommender(Recommender, Protocol):
    """A model that can load a part of its weights."""

    def hold(self, items: slice) -> Recommender:
        """Return the same model with everything in memory that scoring `items` needs."""


def rank_by_columns(
    models: Sequence[ColumnRecommender],
    holdout: Holdout,
    k: int,
    column_block: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rows: np.ndarray | None = None,
) -> list[Ranking]:
    """Return what `rank` returns for the same `rows` of `holdout`, bit for bit; `auc` requires all users with targets.

    Columns of a family are loaded `column_block` at a time, once, or twice with `auc`. Memory: one such block, the top k of all
    users and models, and some blocks of scores. `progress(done, total)` counts user rows, once for each family, block and pass.
    Raises NumericalError if a score is NaN.
    """
    require(rows is None or not auc, "auc can only be computed for all users with targets")
    users = _Users(holdout, rows)
    states = [_State(model, users, k, auc) for model in models]
    families = _families(states)
    blocks = _blocks(holdout, column_block)
    parts = slices(0, len(users.rows), BLOCK_USERS)
    passes = _passes(auc)
    done, total = 0, len(users.rows) * len(families) * len(passes) * len(blocks)
    workspace = threading.local()
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for family, use, block in itertools.product(families, passes, blocks):
            holder = family[0].model.hold(block)
            tasks = {pool.submit(_scan_part, holder, family, use, block, users, part, workspace): part for part in parts}
            # Released before the columns of the next block are loaded.
            del holder
            try:
                for task in as_completed(tasks):
                    task.result()
                    done += tasks[task].stop - tasks[task].start
                    progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [state.ranking(users) for state in states]


def rank_by_columns_on(
    executor: BlockMap,
    models: Sequence[ColumnRecommender],
    holdout: Holdout,
    k: int,
    column_block: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Ranking]:
    """Return what `rank_by_columns` returns. Each block of columns is ranked by a worker of `executor`, which must be able to
    hold it.

    A worker returns the top k of its block. These are merged here by score and then by item, so that the order in which they
    arrive has no effect. Models and `holdout` are sent once. `progress(done, total)` counts blocks.
    """
    users = _Users(holdout, None)
    states = [_State(model, users, k, auc) for model in models]
    blocks = _blocks(holdout, column_block)
    data = executor.put((list(models), holdout, k, auc))
    total = len(_passes(auc)) * len(blocks)
    for done, (index, tops) in enumerate(executor.map(_top_of_block, blocks, data), start=1):
        for state, (items, scores, of_targets) in zip(states, tops, strict=True):
            _merge_top(state.items, state.scores, items, scores)
            if auc:
                state.target_scores[_inside(holdout.target, blocks[index])] = of_targets
        progress(done, total)
    if auc:
        known = executor.put([state.target_scores for state in states])
        for done, (_, counts) in enumerate(executor.map(_above_in_block, blocks, data, known), start=1):
            for state, above in zip(states, counts, strict=True):
                state.above += above
            progress(len(blocks) + done, total)
    return [state.ranking(users) for state in states]


def _blocks(holdout: Holdout, width: int) -> list[slice]:
    require(width >= 1, f"column_block must be >= 1, got {width}")
    return slices(0, holdout.target.shape[1], width)


def _top_of_block(block: slice, data: _Data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each model the top k of the block's items for all users, and the scores of the targets among them."""
    models, holdout, k, auc = data
    users = _Users(holdout, None)
    states = [_State(model, users, min(k, block.stop - block.start), auc) for model in models]
    _scan_block(states, _merge, block, users)
    inside = _inside(holdout.target, block) if auc else slice(0)
    return [(state.items, state.scores, state.target_scores[inside]) for state in states]


def _above_in_block(block: slice, data: _Data, target_scores: list[np.ndarray]) -> list[np.ndarray]:
    models, holdout, k, auc = data
    users = _Users(holdout, None)
    states = [_State(model, users, k, auc) for model in models]
    for state, scores in zip(states, target_scores, strict=True):
        state.target_scores = scores
    _scan_block(states, _count, block, users)
    return [state.above for state in states]


def _scan_block(states: list[_State[ColumnRecommender]], use: Callable[..., None], block: slice, users: _Users) -> None:
    workspace = threading.local()
    for family in _families(states):
        holder = family[0].model.hold(block)
        for part in slices(0, len(users.rows), BLOCK_USERS):
            _scan_part(holder, family, use, block, users, part, workspace)


def _inside(target: sp.csr_array, block: slice) -> np.ndarray:
    """Return which entries of `target` are in the block's columns."""
    return (target.indices >= block.start) & (target.indices < block.stop)


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


_Data = tuple[list[ColumnRecommender], Holdout, int, bool]  # models, holdout, k, auc
