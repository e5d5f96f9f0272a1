"""Closed forms whose item-item matrix is stored in a file: one inverse by tiles, then two vectors per configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.flow import Flow
from rankbench.fitting.method import ClosedForm
from rankbench.fitting.recommenders import LinearRecommender, _sum_rows
from rankbench.solvers.inverse.shared import common_shift, scales
from rankbench.solvers.tiled.gram import count_items
from rankbench.solvers.tiled.inverse import tiled_inverse
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


def fit_tiled(
    X: sp.csr_array,
    members: Sequence[tuple[ClosedForm, Any]],
    folder: Path,
    memory: int,
    dtype: type = np.float32,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    flow: Flow | None = None,
    discard: bool = False,
) -> list[TiledLinearRecommender]:
    """Fit one model per member (method, parameters). All members must have the same shift, and share the matrix in `folder`.

    `tiled_inverse` documents X, `memory`, `resume`, `flow`, `discard` and the errors. Items without training interactions score
    0, as in `fit_shared`.
    """
    C = tiled_inverse(X, common_shift(members), folder, memory, dtype, None, resume, progress, flow, discard)
    diag_C, counts = C.diagonal().astype(np.float64), count_items(X.indices, X.shape[1])
    return [TiledLinearRecommender(C, *scales(solver, p, diag_C, counts)) for solver, p in members]
