"""Ranking of all items by vectors on a PyTorch device: scores, without seen items, and the top k, by blocks of users.

As in `evaluation/ranking.py`, ties go to the lower item id. A device's `topk` does not say which of equal scores it takes, so users whose
scores are equal around the end of the list are ranked again on the host. Scores can differ in the last digits from those of
the CPU.
"""

from __future__ import annotations

import numpy as np
import torch

from rankbench.core.errors import NumericalError
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import Ranking, rank, slices
from rankbench.fitting.recommenders import FactorRecommender

_SCORES = 1 << 26  # scores of a block


def rank_on(model: FactorRecommender, holdout: Holdout, k: int, device: str, rows: np.ndarray | None = None) -> Ranking:
    """As `ranking.rank` for one model, without AUC. Raises NumericalError if a score is NaN."""
    rows = np.flatnonzero(np.diff(holdout.target.indptr)) if rows is None else rows
    folded = model.fold(holdout.users[rows], holdout.history[rows])
    if not isinstance(folded, FactorRecommender):
        return rank([model], holdout, k, rows=rows)[0]
    U, V = (torch.from_numpy(table).to(device) for table in (folded.U, folded.V))
    k = min(k, len(V))
    items, scores = np.full((len(rows), k), -1, np.int32), np.full((len(rows), k), -np.inf, model.dtype)
    all_seen, unclear = holdout.seen, []
    for part in slices(0, len(rows), max(1, _SCORES // len(V))):
        table = U[torch.from_numpy(holdout.users[rows[part]].astype(np.int64)).to(device)] @ V.T
        seen = all_seen[rows[part]]
        at = np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr)), seen.indices.astype(np.int64)
        table[tuple(torch.from_numpy(index).to(device) for index in at)] = -torch.inf
        best, found = (each.cpu().numpy() for each in table.topk(min(k + 1, len(V)), dim=1))
        if np.isnan(best).any():
            raise NumericalError(f"{type(model).__name__}: a score is not a number; raise lam, or use float64")
        if best.shape[1] > k:
            tied = (best[:, k] == best[:, k - 1]) & np.isfinite(best[:, k])
            unclear += [part.start + np.flatnonzero(tied)]
            best, found = best[:, :k], found[:, :k]
        order = np.lexsort((found, -best), axis=1)
        best, found = np.take_along_axis(best, order, 1), np.take_along_axis(found, order, 1)
        scores[part], items[part] = best, np.where(np.isfinite(best), found, -1)
    again = np.concatenate([np.zeros(0, np.int64), *unclear])
    if len(again):
        (exact,) = rank([model], holdout, k, rows=rows[again])
        items[again], scores[again] = exact.items, exact.scores
    return Ranking(rows, holdout.users[rows], items, scores)
