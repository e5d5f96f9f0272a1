"""Ranking of all items for every user: score, mask seen items, keep the top k, by blocks of users and items.

Ties go to the lower item id. Memory: a few score blocks and the top k, whatever n_users x n_items is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numba
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.data.splits import Holdout
from rankbench.fitting.recommenders import Recommender

BLOCK_USERS, BLOCK_ITEMS = 256, 2048  # one block of scores, 2 MB in float32, stays in a core's cache
STRIDE = 64  # number of scores that are compared with the k-th best at once


@dataclass(frozen=True)
class Ranking:
    """The top k items of users.

    `rows` (m,): rows of the users in the holdout; `users` (m,) int32; `items` (m, k) int32, best first, filled with -1 if a
    user has fewer than k candidates; `scores` (m, k), then filled with -inf; `auc` (m,) float64 or None: the share of (target,
    other candidate) pairs in the right order, where a tie counts half.
    """

    rows: np.ndarray
    users: np.ndarray
    items: np.ndarray
    scores: np.ndarray
    auc: np.ndarray | None = None


def rank(
    models: Sequence[Recommender],
    holdout: Holdout,
    k: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rows: np.ndarray | None = None,
    block_users: int = BLOCK_USERS,
    block_items: int = BLOCK_ITEMS,
) -> list[Ranking]:
    """Return one Ranking per model, for the rows of `holdout` that have targets, or for `rows`. Models of a family share their
    base scores.

    Blocks of users run in parallel, in the number of threads set by `threads.pinned`, which does not change the result.
    `progress(done, total)` counts (user, family) rows. Raises NumericalError if a score is NaN.
    """
    rows = np.flatnonzero(np.diff(holdout.target.indptr)) if rows is None else rows
    k = min(k, holdout.target.shape[1])
    # Rows are copied only if they are not all rows, because histories can be as large as the data.
    every = len(rows) == len(holdout.users)
    selected = (holdout.users, holdout.history) if every else (holdout.users[rows], holdout.history[rows])
    models = [model.fold(*selected) for model in models]
    top = [_TopK(len(rows), k, model.dtype) for model in models]
    areas = [np.zeros(len(rows)) for _ in models]
    seen = holdout.seen
    families: dict[int, list[int]] = {}
    for position, model in enumerate(models):
        families.setdefault(model.family, []).append(position)
    done, total = 0, len(rows) * len(families)
    workspace = threading.local()

    def block(members: list[int], part: slice) -> int:
        family = [models[position] for position in members]
        ranked = _rank_block(family, holdout, seen, rows[part], k, block_items, auc, workspace)
        for position, (best, area) in zip(members, ranked, strict=True):
            top[position].items[part], top[position].scores[part] = best.items, best.scores
            if area is not None:
                areas[position][part] = area
        return part.stop - part.start

    parts = [slice(start, min(start + block_users, len(rows))) for start in range(0, len(rows), block_users)]
    # The product of one block is too small to split, so each thread computes a whole block.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(numba.get_num_threads()) as pool:
        tasks = [pool.submit(block, members, part) for members in families.values() for part in parts]
        try:
            for task in as_completed(tasks):
                done += task.result()
                progress(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    users = holdout.users[rows]
    return [Ranking(rows, users, best.items, best.scores, area if auc else None) for best, area in zip(top, areas, strict=True)]


def _rank_block(
    family: Sequence[Recommender],
    holdout: Holdout,
    seen_rows: sp.csr_array,
    rows: np.ndarray,
    k: int,
    width: int,
    auc: bool,
    workspace: threading.local,
) -> Iterator[tuple[_TopK, np.ndarray | None]]:
    users, history, target = holdout.users[rows], holdout.history[rows], holdout.target[rows]
    seen = history if seen_rows is holdout.history else seen_rows[rows]
    n_items = target.shape[1]
    blocks = [slice(start, min(start + width, n_items)) for start in range(0, n_items, width)]
    state = [_TopK(len(rows), k, model.dtype) for model in family]
    target_scores = [np.empty(target.nnz) for _ in family]
    wins = [np.zeros(len(rows)) for _ in family]

    def scored(items: slice) -> Iterator[tuple[int, np.ndarray]]:
        shape, dtype = (len(rows), items.stop - items.start), family[0].dtype
        base = family[0].base(users, history, items, _buffer(workspace, "base", shape, dtype))
        for position, model in enumerate(family):
            # The last model of a family may overwrite the shared array.
            last = position == len(family) - 1
            yield position, model.finish(base, history, items, base if last else _buffer(workspace, "scores", shape, dtype))

    for items in blocks:
        for position, scores in scored(items):
            top = state[position]
            if _scan(scores, items.start, seen.indptr, seen.indices, top.items, top.scores):
                raise NumericalError(f"{type(family[position]).__name__}: a score is not a number; raise lam, or use float64")
            if auc:
                _gather(scores, items.start, target.indptr, target.indices, target_scores[position])
    if auc:
        # AUC scores the blocks again, because a target's score must be known before other scores are compared with it.
        for items in blocks:
            for position, scores in scored(items):
                _mask(scores, items.start, seen.indptr, seen.indices)
                _count_wins(scores, items.start, target.indptr, target.indices, target_scores[position], wins[position])
    n_targets, n_seen = np.diff(target.indptr), np.diff(seen.indptr)
    pairs = n_targets * (n_items - n_seen - n_targets)
    for top, won in zip(state, wins, strict=True):
        yield top, np.divide(won, pairs, out=np.full(len(rows), 0.5), where=pairs > 0) if auc else None


def _buffer(workspace: threading.local, name: str, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return an array of this thread that is reused for every block, because allocation would take as long as scoring."""
    size = shape[0] * shape[1]
    array = getattr(workspace, name, None)
    if array is None or array.size < size or array.dtype != dtype:
        array = np.empty(size, dtype)
        setattr(workspace, name, array)
    return array[:size].reshape(shape)


class _TopK:
    """The best items of each row so far, best first."""

    def __init__(self, m: int, k: int, dtype: np.dtype):
        self.items = np.full((m, k), -1, np.int32)
        self.scores = np.full((m, k), -np.inf, dtype)


@numba.njit(nogil=True, cache=True)
def _mask(scores: np.ndarray, start: int, seen_ptr: np.ndarray, seen: np.ndarray) -> None:
    """Set the scores of seen items to -inf."""
    width = scores.shape[1]
    for u in range(scores.shape[0]):
        own_seen = seen[seen_ptr[u] : seen_ptr[u + 1]]
        for s in range(np.searchsorted(own_seen, start), len(own_seen)):
            j = own_seen[s] - start
            if j >= width:
                break
            scores[u, j] = -np.inf


@numba.njit(nogil=True, cache=True)
def _scan(
    scores: np.ndarray, start: int, seen_ptr: np.ndarray, seen: np.ndarray, top_items: np.ndarray, top_scores: np.ndarray
) -> bool:
    """Mask seen items in `scores` with -inf and merge a block into the top k. Returns whether a score is NaN.

    Items come in increasing id and a new one must be strictly better, so that ties keep the lower id. Positions are unsigned,
    which avoids a check for negative ones at every access.
    """
    _mask(scores, start, seen_ptr, seen)
    m, width = scores.shape
    whole = width - width % STRIDE
    bad = False
    for u in range(m):
        row, items, best = scores[u], top_items[u], top_scores[u]
        threshold = best[-1]
        for first in range(0, whole, STRIDE):
            if _any_above(row, numba.uint64(first), threshold):
                for j in range(numba.uint64(first), numba.uint64(first + STRIDE)):
                    if not (row[j] <= threshold):
                        bad |= _insert(row[j], start + numba.int64(j), items, best)
                        threshold = best[-1]
        for j in range(whole, width):
            if not (row[j] <= threshold):
                bad |= _insert(row[j], start + j, items, best)
                threshold = best[-1]
    return bad


@numba.njit(nogil=True, cache=True)
def _any_above(row: np.ndarray, first: int | np.integer, threshold: float) -> bool:
    """Whether a stride has a score above `threshold`, or NaN, for which the comparison fails, too.

    The result is a single bit, so that the compiler generates a few vector instructions.
    """
    above = np.uint32(0)
    for j in range(numba.uint32(STRIDE)):
        above |= np.uint32(not (row[first + numba.uint64(j)] <= threshold))
    return above != 0


@numba.njit(nogil=True, cache=True)
def _insert(score: float, item: int | np.integer, items: np.ndarray, best: np.ndarray) -> bool:
    """Insert an item that is better than the last one of a top k. Changes nothing and returns True if its score is NaN."""
    if score != score:
        return True
    position = len(best) - 1
    while position > 0 and best[position - 1] < score:
        best[position] = best[position - 1]
        items[position] = items[position - 1]
        position -= 1
    best[position] = score
    items[position] = item
    return False


@numba.njit(nogil=True, cache=True)
def _gather(scores: np.ndarray, start: int, ptr: np.ndarray, targets: np.ndarray, out: np.ndarray) -> None:
    """Write the scores of each user's targets in this block to `out`."""
    m, width = scores.shape
    for u in range(m):
        for s in range(ptr[u], ptr[u + 1]):
            j = targets[s] - start
            if 0 <= j < width:
                out[s] = scores[u, j]


@numba.njit(nogil=True, cache=True)
def _count_wins(
    scores: np.ndarray, start: int, ptr: np.ndarray, targets: np.ndarray, target_scores: np.ndarray, wins: np.ndarray
) -> None:
    """Add for every candidate that is not a target the number of targets with a higher score; a tie counts half."""
    m, width = scores.shape
    for u in range(m):
        own_scores = np.sort(target_scores[ptr[u] : ptr[u + 1]])
        next_target = ptr[u] + np.searchsorted(targets[ptr[u] : ptr[u + 1]], start)
        won = 0.0
        for j in range(width):
            if next_target < ptr[u + 1] and targets[next_target] - start == j:
                next_target += 1
                continue
            x = scores[u, j]
            if x == -np.inf:
                continue
            won += len(own_scores) - 0.5 * (np.searchsorted(own_scores, x, "left") + np.searchsorted(own_scores, x, "right"))
        wins[u] += won
