"""Lists that another program made, as a ranking: in their order, without the items that our own rankings leave out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import Ranking


@dataclass(frozen=True)
class ListCounts:
    """Numbers of users without a list, with fewer items than the longest cutoff, and with equal scores in their list; of users
    with a list who are not measured; of items that are left out because the user's history has them; and of measured users
    without a history who are ranked by popularity instead.
    """

    without_list: int
    short: int
    tied: int
    not_measured: int
    seen_items: int
    by_popularity: int = 0


def rank_lists(
    user: np.ndarray, item: np.ndarray, order: np.ndarray, holdout: Holdout, k: int, rows: np.ndarray | None = None
) -> tuple[Ranking, ListCounts]:
    """Return the first k items of each user in `rows` of the holdout, by default all that are measured.

    `user` (n,): the user of each row of a list, who may be beyond those of the data; `item` (n,); `order` (n,): smaller for
    better items. As in our own rankings, items of the history are left out before lists are cut, and the lower item id goes
    first in a tie.
    """
    rows = holdout.rows if rows is None else rows
    n_items = holdout.target.shape[1]
    at_user = np.full(max(user.max(initial=0), holdout.users.max(initial=0)) + 1, -1)
    at_user[holdout.users[rows]] = np.arange(len(rows))
    at = at_user[user]
    not_measured = len(np.unique(user[at < 0]))
    listed = np.bincount(at[at >= 0], minlength=len(rows)) > 0
    at, item, order = at[at >= 0], item[at >= 0], order[at >= 0]
    seen = holdout.seen[rows]
    pairs = np.repeat(np.arange(len(rows)), np.diff(seen.indptr)) * n_items + seen.indices
    kept = ~np.isin(at * n_items + item, pairs)
    n_seen = int(np.count_nonzero(~kept))
    at, item, order = at[kept], item[kept], order[kept]
    sorting = np.lexsort((item, order, at))
    at, item, order = at[sorting], item[sorting], order[sorting]
    lengths = np.bincount(at, minlength=len(rows))
    place = np.arange(len(at)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    tied = np.unique(at[1:][(np.diff(at) == 0) & (np.diff(order) == 0)])
    width = min(k, n_items)
    items, scores = np.full((len(rows), width), -1, np.int32), np.full((len(rows), width), -np.inf, np.float32)
    first = place < width
    items[at[first], place[first]] = item[first]
    scores[at[first], place[first]] = -place[first]  # a list has an order, and its scores may be on any scale
    short = int(np.count_nonzero(listed & (lengths < k)))
    counts = ListCounts(int(np.count_nonzero(~listed)), short, len(tied), not_measured, n_seen)
    return Ranking(rows, holdout.users[rows], items, scores), counts
