"""Every item ranked for every user: score, mask what was seen, keep the top k, by blocks of users and of items.

Ties go to the lower item id. Memory: a few score blocks and the top k, whatever n_users x n_items is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numba
import numpy as np

from rankbench.data.splits import Holdout
from rankbench.errors import NumericalError
from rankbench.recommender import Recommender

BLOCK_CELLS = 8 << 20  # scores in one block: 32 MB in float32
BLOCK_ITEMS = 1 << 17  # items in one block: a user's row of scores stays in cache


@dataclass(frozen=True)
class Ranking:
    """The top k of users that have targets.

    `rows` (m,): their rows in the holdout; `users` (m,) int32; `items` (m, k) int32, best first, -1 where a user has fewer
    than k candidates; `auc` (m,) float64 or None: the share of (target, other candidate) pairs in the right order, a tie
    counting half.
    """

    rows: np.ndarray
    users: np.ndarray
    items: np.ndarray
    auc: np.ndarray | None = None


def rank(
    models: Sequence[Recommender],
    holdout: Holdout,
    k: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    block_cells: int = BLOCK_CELLS,
    block_items: int = BLOCK_ITEMS,
) -> list[Ranking]:
    """One Ranking a model, over the rows of `holdout` that have targets. Models of a family share their base scores.

    `progress(done, total)` counts (user, family) rows. Raises NumericalError when a score is NaN.
    """
    rows = np.flatnonzero(np.diff(holdout.target.indptr))
    n_items = holdout.target.shape[1]
    k = min(k, n_items)
    width = min(n_items, block_items)
    height = max(1, block_cells // width)
    order = sorted(range(len(models)), key=lambda position: models[position].family)
    families = [list(group) for _, group in groupby(order, key=lambda position: models[position].family)]
    top = [np.full((len(rows), k), -1, np.int32) for _ in models]
    areas = [np.zeros(len(rows)) if auc else None for _ in models]
    done, total = 0, len(rows) * len(families)
    seen = holdout.seen
    for members in families:
        family = [models[position] for position in members]
        for start in range(0, len(rows), height):
            part = slice(start, min(start + height, len(rows)))
            found = _rank_block(family, holdout, seen, rows[part], k, width, auc)
            for position, (items, area) in zip(members, found, strict=True):
                top[position][part] = items
                if auc:
                    areas[position][part] = area
            done += part.stop - part.start
            progress(done, total)
    users = holdout.users[rows]
    return [Ranking(rows, users, items, area) for items, area in zip(top, areas, strict=True)]


def _rank_block(family, holdout, seen_rows, rows, k, width, auc) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    users, history, target = holdout.users[rows], holdout.history[rows], holdout.target[rows]
    seen = seen_rows[rows]
    n_items = target.shape[1]
    blocks = [slice(start, min(start + width, n_items)) for start in range(0, n_items, width)]
    state = [_TopK(len(rows), k) for _ in family]
    target_scores = [np.empty(target.nnz) for _ in family]
    wins = [np.zeros(len(rows)) for _ in family]

    def scored(items: slice) -> Iterator[tuple[int, np.ndarray]]:
        base = family[0].base(users, history, items)
        out = np.empty_like(base)
        for position, model in enumerate(family):
            yield position, model.finish(base, history, items, out)

    for items in blocks:
        for position, scores in scored(items):
            top = state[position]
            if _scan(scores, items.start, seen.indptr, seen.indices, top.items, top.scores):
                raise NumericalError(f"{type(family[position]).__name__}: a score is not a number; raise lam, or use float64")
            if auc:
                _gather(scores, items.start, target.indptr, target.indices, target_scores[position])
                if len(blocks) == 1:
                    _count_wins(scores, items.start, target.indptr, target.indices, target_scores[position], wins[position])
    if auc and len(blocks) > 1:
        # A target's score must be known before others are counted against it, so the blocks are scored again.
        for items in blocks:
            for position, scores in scored(items):
                _scan(
                    scores,
                    items.start,
                    seen.indptr,
                    seen.indices,
                    np.empty((len(rows), 0), np.int32),
                    np.empty((len(rows), 0)),
                )
                _count_wins(scores, items.start, target.indptr, target.indices, target_scores[position], wins[position])
    n_targets, n_seen = np.diff(target.indptr), np.diff(seen.indptr)
    pairs = n_targets * (n_items - n_seen - n_targets)
    for top, won in zip(state, wins, strict=True):
        yield top.items, np.divide(won, pairs, out=np.full(len(rows), 0.5), where=pairs > 0) if auc else None


class _TopK:
    """Best items so far, by row, best first."""

    def __init__(self, m: int, k: int):
        self.items = np.full((m, k), -1, np.int32)
        self.scores = np.full((m, k), -np.inf)


@numba.njit(parallel=True, cache=True)
def _scan(scores, start, seen_ptr, seen, top_items, top_scores):
    """Mask seen items in `scores` with -inf and merge a block into the top k; true when a score is NaN.

    Items come in increasing id and a newcomer must be strictly better, so ties keep the lower id.
    """
    m, width = scores.shape
    k = top_items.shape[1]
    bad = np.zeros(m, np.bool_)
    for u in numba.prange(m):
        row = scores[u]
        for s in range(seen_ptr[u], seen_ptr[u + 1]):
            j = seen[s] - start
            if 0 <= j < width:
                row[j] = -np.inf
        if k == 0:
            continue
        items, best = top_items[u], top_scores[u]
        threshold = best[k - 1]
        for j in range(width):
            x = row[j]
            # One comparison turns away nearly every item; NaN fails it as well and is looked at.
            if not (x <= threshold):
                if x != x:
                    bad[u] = True
                    continue
                place = k - 1
                while place > 0 and best[place - 1] < x:
                    best[place] = best[place - 1]
                    items[place] = items[place - 1]
                    place -= 1
                best[place] = x
                items[place] = start + j
                threshold = best[k - 1]
    return bad.any()


@numba.njit(parallel=True, cache=True)
def _gather(scores, start, ptr, targets, out):
    """out = the scores of each user's targets that lie in this block."""
    m, width = scores.shape
    for u in numba.prange(m):
        for s in range(ptr[u], ptr[u + 1]):
            j = targets[s] - start
            if 0 <= j < width:
                out[s] = scores[u, j]


@numba.njit(parallel=True, cache=True)
def _count_wins(scores, start, ptr, targets, target_scores, wins):
    """Add, for every candidate that is no target, how many targets beat it; a tie counts half."""
    m, width = scores.shape
    for u in numba.prange(m):
        mine = np.sort(target_scores[ptr[u] : ptr[u + 1]])
        next_target = ptr[u] + np.searchsorted(targets[ptr[u] : ptr[u + 1]], start)
        won = 0.0
        for j in range(width):
            if next_target < ptr[u + 1] and targets[next_target] - start == j:
                next_target += 1
                continue
            x = scores[u, j]
            if x == -np.inf:
                continue
            won += len(mine) - 0.5 * (np.searchsorted(mine, x, "left") + np.searchsorted(mine, x, "right"))
        wins[u] += won
