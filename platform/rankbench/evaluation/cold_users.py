"""Users without a history, as a split in time has them: how they are ranked, and their means beside those of the others.

A model knows nothing of such a user. Its scores are all equal, as those of item weights are, and ties would rank the items in
the order of their ids; or they come from a vector that was drawn at random and never trained. A mean over all users would
compare these accidents, so that by default (`drop`) it leaves them out, for every method alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rankbench.core.thread_pool import slices
from rankbench.data.splits import Holdout
from rankbench.evaluation.beyond import OF_LISTS
from rankbench.evaluation.metrics import MetricSet, PerUser, measure
from rankbench.evaluation.ranking import BLOCK_ITEMS, BLOCK_USERS, Ranking, rank
from rankbench.fitting.recommenders import FactorRecommender, Recommender, score

WITH, WITHOUT = "with_history", "without_history"
Means = dict[str, dict[str, float]]  # WITH and WITHOUT, each with its metrics


def rank_all(
    rank_rows: Callable[[Holdout, np.ndarray | None], list[Ranking]],
    models: Sequence[Recommender],
    holdout: Holdout,
    k: int,
    auc: bool = False,
    rows: np.ndarray | None = None,
) -> list[Ranking]:
    """Return one ranking per model, of `rows` of the holdout, by default all that are measured. `rank_rows(holdout, rows)`
    ranks users with a history; the others are ranked as `holdout.cold_users` says, if the holdout has the counts of items.
    """
    chosen = holdout.rows if rows is None else rows
    cold = chosen[holdout.cold[chosen]]
    if not len(cold) or holdout.item_counts is None:
        return rank_rows(holdout, rows)
    known = None if rows is None else np.setdiff1d(rows, cold)
    rankings = rank_rows(replace(holdout, cold_users="drop"), known)
    popular = rank_by_popularity(holdout, k, auc, cold)
    return [
        _merged(ranking, _rank_cold(model, holdout, popular, k, auc) if holdout.cold_users == "keep" else popular, holdout)
        for model, ranking in zip(models, rankings, strict=True)
    ]


def rank_by_popularity(holdout: Holdout, k: int, auc: bool, rows: np.ndarray) -> Ranking:
    """Return the ranking of the users in `rows` by the number of interactions in the fitted data."""
    assert holdout.item_counts is not None, "holdouts with cold users have the counts of items"
    n_users = int(holdout.users.max()) + 1
    model = FactorRecommender(np.ones((n_users, 1), np.float32), holdout.item_counts.astype(np.float32)[:, None])
    return rank([model], holdout, k, auc, rows=rows)[0]


def counts_of_users(holdout: Holdout) -> dict[str, int]:
    """Return how many users are measured, how many have no targets and, if there are any, how many have no history."""
    without_targets = int(np.count_nonzero(np.diff(holdout.target.indptr) == 0))
    counts = {"measured": len(holdout.rows), "without_targets": without_targets}
    return counts | ({WITHOUT: int(holdout.cold.sum())} if holdout.cold.any() else {})


def means_by_history(holdout: Holdout, measured: Sequence[PerUser], wanted: MetricSet) -> list[Means]:
    """Return for each model the means of the measured users with and without a history; nothing if all have one.

    Users who are left out of the measurement are ranked by popularity here, once for all models. Metrics of whole lists are
    left out, as are those that weight users.
    """
    if not holdout.cold.any():
        return [{} for _ in measured]
    first, cold = measured[0], holdout.cold[holdout.rows]
    names = [name for name in first.values if name not in first.weights and name.partition("@")[0] not in OF_LISTS]
    left_out: dict[str, np.ndarray] = {}
    if holdout.cold_users == "drop":
        popular = rank_by_popularity(holdout, wanted.k, wanted.auc, np.flatnonzero(holdout.cold))
        left_out = measure(popular, holdout, MetricSet(tuple(names))).values
    result = []
    for each in measured:
        groups = {WITH: {name: each.values[name][~cold] for name in names}}
        groups[WITHOUT] = left_out or {name: each.values[name][cold] for name in names}
        result.append(
            {group: {name: float(v.mean()) for name, v in found.items() if len(v)} for group, found in groups.items()}
        )
    return result


def _rank_cold(model: Recommender, holdout: Holdout, popular: Ranking, k: int, auc: bool) -> Ranking:
    """Rank by the model, and by popularity where it has the same score for every item."""
    if hasattr(model, "hold"):  # sums of item weights over an empty history are zero
        return popular
    own = rank([model], holdout, k, auc, rows=popular.rows)[0]
    knows = _tells_items_apart(model, holdout, popular.rows)
    return _merged(_part(own, knows, holdout), _part(popular, ~knows, holdout), holdout)


def _tells_items_apart(model: Recommender, holdout: Holdout, rows: np.ndarray) -> np.ndarray:
    """Return whether the scores (len(rows),) of each user differ between items."""
    found = np.zeros(len(rows), bool)
    for block in slices(0, len(rows), BLOCK_USERS):
        part = rows[block]
        users, history = holdout.users[part], holdout.history[part]
        folded, first = model.fold(users, history), None
        for items in slices(0, model.n_items, BLOCK_ITEMS):
            scores = score(folded, users, history, items)
            first = scores[:, :1].copy() if first is None else first
            found[block] |= (scores != first).any(axis=1)
    return found


def _part(ranking: Ranking, mask: np.ndarray, holdout: Holdout) -> Ranking:
    """The users of `mask` (m,) of a ranking."""
    return _chosen([ranking], np.flatnonzero(mask), np.flatnonzero(np.repeat(mask, _n_targets(ranking, holdout))))


def _merged(a: Ranking, b: Ranking, holdout: Holdout) -> Ranking:
    """The users of two rankings in the order of the holdout."""
    of_target = np.concatenate([np.repeat(each.rows, _n_targets(each, holdout)) for each in (a, b)])
    return _chosen([a, b], np.argsort(np.r_[a.rows, b.rows]), np.argsort(of_target, kind="stable"))


def _chosen(rankings: Sequence[Ranking], users: np.ndarray, targets: np.ndarray) -> Ranking:
    """The users and targets at these positions in the rankings, one after another."""
    values: dict[str, Any] = {}
    for each in fields(Ranking):
        arrays = [getattr(ranking, each.name) for ranking in rankings]
        known = all(array is not None for array in arrays)
        values[each.name] = np.concatenate(arrays)[targets if each.name == "above" else users] if known else None
    return Ranking(**values)


def _n_targets(ranking: Ranking, holdout: Holdout) -> np.ndarray:
    return np.diff(holdout.target.indptr)[ranking.rows]
