"""Ranking of all items for every user: score, mask seen items, keep the top k, by blocks of users and items.

Ties go to the lower item id. Memory: a few score blocks and the top k, whatever n_users x n_items is; with AUC also
the scores of the targets.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.compiler import numba
from rankbench.core.errors import NumericalError
from rankbench.core.thread_pool import slices
from rankbench.data.splits import Holdout
from rankbench.fitting.recommenders import Recommender

BLOCK_USERS, BLOCK_ITEMS = 256, 2048  # one block of scores, 2 MB in float32, stays in a core's cache
STRIDE = 64  # number of scores that are compared with the k-th best at once


@dataclass(frozen=True)
class Ranking:
    """The top k items of users.

    `rows` (m,): rows of the users in the holdout; `users` (m,) int32; `items` (m, k) int32, best first, filled with -1 if a
    user has fewer than k candidates; `scores` (m, k), then filled with -inf; `auc` (m,) float64 or None: the share of (target,
    other candidate) pairs in the right order, where a tie counts half. With it come `above`, for every target of these users in
    the order of the holdout the number of other candidates with a higher score, where a tie counts half, and `others` (m,), the
    number of candidates that are no targets. `next_score` (m,) or None: the score of the best candidate that is not in the
    list, -inf if there is none.
    """

    rows: np.ndarray
    users: np.ndarray
    items: np.ndarray
    scores: np.ndarray
    auc: np.ndarray | None = None
    above: np.ndarray | None = None
    others: np.ndarray | None = None
    next_score: np.ndarray | None = None

    @property
    def n_tied(self) -> int:
        """The number of users whose last item has the score of one that is not in the list: ids decide which of them is."""
        if self.next_score is None:
            return 0
        return int(np.count_nonzero((self.next_score == self.scores[:, -1]) & np.isfinite(self.next_score)))


def rank(
    models: Sequence[Recommender],
    holdout: Holdout,
    k: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rows: np.ndarray | None = None,
    columns: int | None = None,
    block_users: int = BLOCK_USERS,
    block_items: int = BLOCK_ITEMS,
) -> list[Ranking]:
    """Return one Ranking per model, for `Holdout.rows`, or for `rows`. Models of a family share their base scores.

    Blocks of users run in parallel, in the number of threads set by `threads.pinned`, which does not change the result. Models
    that load their weights (`ColumnRecommender`) load `columns` items at a time, once, or twice with `auc`, for all users.
    `progress(done, total)` counts user rows, once for each family, block of columns and pass over the scores. Raises
    NumericalError if a score is NaN.
    """
    users = Users(holdout, rows)
    states = [State(model, users, k, auc) for model in users.folded(models)]
    n_items = holdout.target.shape[1]
    blocks, parts = slices(0, n_items, columns or n_items), slices(0, len(users.rows), block_users)
    # AUC needs a second pass, because a target's score must be known before other scores are compared with it.
    passes = [merge, count] if auc else [merge]
    work = list(itertools.product(families_of(states), passes, blocks))
    done, total = 0, len(users.rows) * len(work)
    workspace = threading.local()
    # The product of one block is too small to split, so each thread computes a whole block.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for family, use, block in work:
            holder = held(family[0].model, block) if columns else family[0].model
            tasks = {
                pool.submit(scan_part, holder, family, use, block, users, part, workspace, block_items): part for part in parts
            }
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


class ColumnRecommender(Recommender, Protocol):
    """A model that can load a part of its weights."""

    def hold(self, items: slice) -> Recommender:
        """Return the same model with everything in memory that scoring `items` needs."""


def held(model: Recommender, items: slice) -> Recommender:
    """The model that scores `items`: itself, unless its weights must be loaded."""
    return model.hold(items) if hasattr(model, "hold") else model


class Users:
    """The users to rank: `rows` of a holdout, by default `Holdout.rows`."""

    def __init__(self, holdout: Holdout, rows: np.ndarray | None = None):
        n_targets = np.diff(holdout.target.indptr)
        self.holdout, self.seen = holdout, holdout.seen
        self.rows = holdout.rows if rows is None else rows
        self.first_target = np.append(0, np.cumsum(n_targets[self.rows]))  # of each row, among the targets of all rows

    def folded(self, models: Sequence[Recommender]) -> list[Recommender]:
        """The models for the users' histories. Rows are copied only if they are not all, as histories can be large."""
        users, history = self.holdout.users, self.holdout.history
        if len(self.rows) < len(users):
            users, history = users[self.rows], history[self.rows]
        return [model.fold(users, history) for model in models]


class State:
    """Intermediate ranking by one model: the best k + 1 items of each user so far, best first, and what AUC needs."""

    def __init__(self, model: Recommender, users: Users, k: int, auc: bool):
        self.model, self.auc, self.k = model, auc, k
        shape = len(users.rows), min(k + 1, users.holdout.target.shape[1])
        self.items = np.full(shape, -1, np.int32)
        self.scores = np.full(shape, -np.inf, model.dtype)
        self.target_scores = np.empty(users.first_target[-1] if auc else 0)
        self.above = np.zeros(users.first_target[-1] if auc else 0)

    def ranking(self, users: Users) -> Ranking:
        ids = users.holdout.users[users.rows]
        items, scores = (np.ascontiguousarray(each[:, : self.k]) for each in (self.items, self.scores))
        next_score = self.scores[:, self.k] if self.scores.shape[1] > self.k else None
        if not self.auc:
            return Ranking(users.rows, ids, items, scores, next_score=next_score)
        n_targets, n_seen = np.diff(users.first_target), np.diff(users.seen.indptr)[users.rows]
        others = users.holdout.target.shape[1] - n_seen - n_targets
        row = np.repeat(np.arange(len(users.rows)), n_targets)
        wins = n_targets * others - np.bincount(row, weights=self.above, minlength=len(users.rows))
        area = np.divide(wins, n_targets * others, out=np.full(len(users.rows), 0.5), where=n_targets * others > 0)
        return Ranking(users.rows, ids, items, scores, area, self.above, others, next_score)


def families_of(states: Sequence[State]) -> list[list[State]]:
    """Return groups of models that share their base scores."""
    families: dict[int, list[State]] = {}
    for state in states:
        families.setdefault(state.model.family, []).append(state)
    return list(families.values())


def scan_part(
    holder: Recommender, family: Sequence[State], use: Callable[..., None], block: slice, users: Users, part: slice,
    workspace: threading.local, width: int = BLOCK_ITEMS,
) -> None:  # fmt: skip
    """Score the users of `part` for the items of `block`, `width` at a time, and pass the scores to `use`."""
    holdout, rows = users.holdout, users.rows[part]
    ids, history, target = holdout.users[rows], holdout.history[rows], holdout.target[rows]
    seen = history if users.seen is holdout.history else users.seen[rows]
    targets = slice(users.first_target[part.start], users.first_target[part.stop])
    for items in slices(block.start, block.stop, width):
        shape = (len(rows), items.stop - items.start)
        base = holder.base(ids, history, items, _buffer(workspace, "base", shape, holder.dtype))
        for state in family:
            # The last model of a family may overwrite the shared array.
            out = base if state is family[-1] else _buffer(workspace, "scores", shape, holder.dtype)
            use(state, state.model.finish(base, history, items, out), items.start, seen, target, part, targets)


def merge(
    state: State, scores: np.ndarray, start: int, seen: sp.csr_array, target: sp.csr_array, part: slice, targets: slice
) -> None:
    if _scan(scores, start, seen.indptr, seen.indices, state.items[part], state.scores[part]):
        raise NumericalError(f"{type(state.model).__name__}: a score is not a number; raise lam, or use float64")
    if state.auc:
        _gather(scores, start, target.indptr, target.indices, state.target_scores[targets])


def count(
    state: State, scores: np.ndarray, start: int, seen: sp.csr_array, target: sp.csr_array, part: slice, targets: slice
) -> None:
    above, target_scores = state.above[targets], state.target_scores[targets]
    _count_above(scores, start, seen.indptr, seen.indices, target.indptr, target.indices, target_scores, above)


def _buffer(workspace: threading.local, name: str, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return an array of this thread that is reused for every block, because allocation would take as long as scoring."""
    size = shape[0] * shape[1]
    array = getattr(workspace, name, None)
    if array is None or array.size < size or array.dtype != dtype:
        array = np.empty(size, dtype)
        setattr(workspace, name, array)
    return array[:size].reshape(shape)


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
def _count_above(
    scores: np.ndarray, start: int, seen_ptr: np.ndarray, seen: np.ndarray, ptr: np.ndarray, targets: np.ndarray,
    target_scores: np.ndarray, above: np.ndarray,
) -> None:  # fmt: skip
    """Add to each target the number of unseen items of this block that are no targets and score higher; a tie counts half."""
    m, width = scores.shape
    for u in range(m):
        first, last = ptr[u], ptr[u + 1]
        order = np.argsort(target_scores[first:last])
        own_scores = target_scores[first:last][order]
        next_target = first + np.searchsorted(targets[first:last], start)
        last_seen = seen_ptr[u + 1]
        next_seen = seen_ptr[u] + np.searchsorted(seen[seen_ptr[u] : last_seen], start)
        # A candidate is above the first `lower` targets and equal to those up to `upper`, so only the ends of both are written.
        steps = np.zeros(len(order) + 1)
        for j in range(width):
            is_target = next_target < last and targets[next_target] - start == j
            is_seen = next_seen < last_seen and seen[next_seen] - start == j
            next_target += is_target
            next_seen += is_seen
            if is_target or is_seen:
                continue
            x = scores[u, j]
            steps[0] += 1.0
            steps[np.searchsorted(own_scores, x, "left")] -= 0.5
            steps[np.searchsorted(own_scores, x, "right")] -= 0.5
        total = 0.0
        for position in range(len(order)):
            total += steps[position]
            above[first + order[position]] += total
