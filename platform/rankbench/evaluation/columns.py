"""Ranking of all items for every user, with items as the outer loop, for weights too large for memory.

The loops of `ranking.rank` are exchanged, with the same kernels: each block of items is read once for all users, whose top k
stay in memory. Blocks come in increasing item id, so that ties go to the lower id here, too.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol

import numba
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError, require
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import (
    BLOCK_ITEMS,
    BLOCK_USERS,
    Ranking,
    _buffer,
    _count_wins,
    _gather,
    _mask,
    _scan,
    _TopK,
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
    rows = np.flatnonzero(np.diff(holdout.target.indptr)) if rows is None else rows
    n_items, seen = holdout.target.shape[1], holdout.seen
    states = [_State(model, holdout.target, len(rows), k, auc) for model in models]
    families = _families(states)
    blocks = _blocks(n_items, column_block)
    parts = [slice(start, min(start + BLOCK_USERS, len(rows))) for start in range(0, len(rows), BLOCK_USERS)]
    # AUC needs a second pass, because a target's score must be known before other scores are compared with it.
    passes = [_merge, _count] if auc else [_merge]
    done, total = 0, len(rows) * len(families) * len(passes) * len(blocks)
    workspace = threading.local()
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for family, use, block in itertools.product(families.values(), passes, blocks):
            holder = family[0].model.hold(block)
            scan = functools.partial(_scan_part, holder, family, use, block, holdout, seen, rows, workspace)
            tasks = [pool.submit(scan, part) for part in parts]
            # Released before the columns of the next block are loaded.
            del holder, scan
            try:
                for task in as_completed(tasks):
                    done += task.result()
                    progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [state.ranking(holdout, seen, rows) for state in states]


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
    rows = np.flatnonzero(np.diff(holdout.target.indptr))
    states = [_State(model, holdout.target, len(rows), k, auc) for model in models]
    blocks = _blocks(holdout.target.shape[1], column_block)
    data = executor.put((list(models), holdout, rows, k, auc))
    passes = 2 if auc else 1
    for done, (index, tops) in enumerate(executor.map(_top_of_block, blocks, data), start=1):
        for state, (items, scores, of_targets) in zip(states, tops, strict=True):
            _merge_top(state.top.items, state.top.scores, items, scores)
            if auc:
                state.target_scores[_inside(holdout.target, blocks[index])] = of_targets
        progress(done, passes * len(blocks))
    if auc:
        known = executor.put([state.target_scores for state in states])
        for done, (_, block_wins) in enumerate(executor.map(_wins_of_block, blocks, data, known), start=1):
            for state, wins in zip(states, block_wins, strict=True):
                state.wins += wins
            progress(len(blocks) + done, passes * len(blocks))
    return [state.ranking(holdout, holdout.seen, rows) for state in states]


def _blocks(n_items: int, width: int) -> list[slice]:
    require(width >= 1, f"column_block must be >= 1, got {width}")
    return [slice(start, min(start + width, n_items)) for start in range(0, n_items, width)]


def _families(states: list[_State]) -> dict[int, list[_State]]:
    """Return groups of models that share their columns."""
    families: dict[int, list[_State]] = {}
    for state in states:
        families.setdefault(state.model.family, []).append(state)
    return families


def _top_of_block(block: slice, data: _Data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each model the top k of the block's items for all users, and the scores of the targets among them."""
    models, holdout, rows, k, auc = data
    states = [_State(model, holdout.target, len(rows), min(k, block.stop - block.start), auc) for model in models]
    _scan_block(states, _merge, block, holdout, rows)
    inside = _inside(holdout.target, block) if auc else slice(0)
    return [(s.top.items, s.top.scores, s.target_scores[inside]) for s in states]


def _wins_of_block(block: slice, data: _Data, target_scores: list[np.ndarray]) -> list[np.ndarray]:
    models, holdout, rows, k, auc = data
    states = [_State(model, holdout.target, len(rows), k, auc) for model in models]
    for state, scores in zip(states, target_scores, strict=True):
        state.target_scores = scores
    _scan_block(states, _count, block, holdout, rows)
    return [state.wins for state in states]


def _scan_block(states: list[_State], use: _Use, block: slice, holdout: Holdout, rows: np.ndarray) -> None:
    workspace, seen = threading.local(), holdout.seen
    families = _families(states)
    for family in families.values():
        holder = family[0].model.hold(block)
        for start in range(0, len(rows), BLOCK_USERS):
            part = slice(start, min(start + BLOCK_USERS, len(rows)))
            _scan_part(holder, family, use, block, holdout, seen, rows, workspace, part)


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


_Use = Callable[..., None]  # _merge or _count
_Data = tuple[list[ColumnRecommender], Holdout, np.ndarray, int, bool]  # models, holdout, rows, k, auc


class _State:
    """Intermediate rankings of one model for all users."""

    def __init__(self, model: ColumnRecommender, target: sp.csr_array, n_rows: int, k: int, auc: bool):
        self.model = model
        self.top = _TopK(n_rows, min(k, target.shape[1]), model.dtype)
        self.auc = auc
        self.target_scores = np.empty(target.nnz if auc else 0)
        self.wins = np.zeros(n_rows if auc else 0)

    def ranking(self, holdout: Holdout, seen: sp.csr_array, rows: np.ndarray) -> Ranking:
        area = None
        if self.auc:
            n_targets, n_seen = np.diff(holdout.target.indptr)[rows], np.diff(seen.indptr)[rows]
            pairs = n_targets * (holdout.target.shape[1] - n_seen - n_targets)
            area = np.divide(self.wins, pairs, out=np.full(len(rows), 0.5), where=pairs > 0)
        return Ranking(rows, holdout.users[rows], self.top.items, self.top.scores, area)


def _scan_part(
    holder: Recommender,
    family: list[_State],
    use: _Use,
    block: slice,
    holdout: Holdout,
    seen_rows: sp.csr_array,
    rows: np.ndarray,
    workspace: threading.local,
    part: slice,
) -> int:
    """Score the users of `part` for the items of `block` and pass the scores to `use`. Returns the number of users."""
    users, history, target = (of[rows[part]] for of in (holdout.users, holdout.history, holdout.target))
    seen = history if seen_rows is holdout.history else seen_rows[rows[part]]
    # Rows without targets have no entries, so the targets of a part are contiguous.
    first = holdout.target.indptr[rows[part.start]]
    entries = slice(first, first + target.nnz)
    for start in range(block.start, block.stop, BLOCK_ITEMS):
        items = slice(start, min(start + BLOCK_ITEMS, block.stop))
        shape = (len(users), items.stop - items.start)
        base = holder.base(users, history, items, _buffer(workspace, "base", shape, holder.dtype))
        for state in family:
            # The last model of a family may overwrite the shared array.
            out = base if state is family[-1] else _buffer(workspace, "scores", shape, holder.dtype)
            scores = state.model.finish(base, history, items, out)
            use(state, scores, start, seen, target, part, entries)
    return len(users)


def _merge(
    state: _State, scores: np.ndarray, start: int, seen: sp.csr_array, target: sp.csr_array, part: slice, entries: slice
) -> None:
    top = state.top
    if _scan(scores, start, seen.indptr, seen.indices, top.items[part], top.scores[part]):
        raise NumericalError(f"{type(state.model).__name__}: a score is not a number; raise lam, or use float64")
    if state.auc:
        _gather(scores, start, target.indptr, target.indices, state.target_scores[entries])


def _count(
    state: _State, scores: np.ndarray, start: int, seen: sp.csr_array, target: sp.csr_array, part: slice, entries: slice
) -> None:
    _mask(scores, start, seen.indptr, seen.indices)
    _count_wins(scores, start, target.indptr, target.indices, state.target_scores[entries], state.wins[part])
