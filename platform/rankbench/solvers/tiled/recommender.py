"""Scores from an item-item matrix that is stored in a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.recommenders import LinearRecommender, _sum_rows
from rankbench.solvers.tiled.matrix import TiledMatrix


@dataclass(frozen=True)
class TiledLinearRecommender(LinearRecommender):
    """A `LinearRecommender` whose C is a TiledMatrix.

    `hold` reads columns of C into memory, to score the items in them. Without it every call reads the file, which is adequate
    for a few users; `evaluation.ranking.rank` loads blocks of columns for many.
    """

    C: TiledMatrix
    first: int = 0
    held: np.ndarray | None = None  # columns of C from `first` on, (n_items, width)

    def hold(self, items: slice) -> TiledLinearRecommender:
        """The same model with the columns of `items` in memory."""
        start, stop, _ = items.indices(self.n_items)
        return replace(self, first=start, held=self.C.columns(start, stop))

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        start, stop, _ = items.indices(self.n_items)
        inside = self.held is not None and self.first <= start and stop <= self.first + self.held.shape[1]
        model = self if inside else self.hold(items)
        _sum_rows(history.indptr, history.indices, model.held, start - model.first, out)
        return out

    def dense_weights(self) -> np.ndarray:
        """W, (n_items, n_items), for small data and tests."""
        return self.C.columns(0, self.n_items) * self.beta + np.diag(self.alpha)
