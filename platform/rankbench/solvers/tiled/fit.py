"""`inverse.shared.fit_shared` for matrices beyond the memory: one inverse by tiles, then two vectors per configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import require
from rankbench.fitting.flow import Flow
from rankbench.fitting.method import ClosedForm
from rankbench.solvers.inverse.shared import scales
from rankbench.solvers.tiled.gram import count_items
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.solvers.tiled.recommender import TiledLinearRecommender


def fit_tiled(
    X: sp.csr_array,
    members: Sequence[tuple[ClosedForm, Any]],
    folder: Path,
    memory: int,
    dtype: type = np.float32,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    flow: Flow | None = None,
) -> list[TiledLinearRecommender]:
    """Fit one model per member (method, parameters). All members must have the same shift, and share the matrix in `folder`.

    `tiled_inverse` documents X, `memory`, `resume`, `flow` and the errors. Items without training interactions score 0, as in
    `fit_shared`.
    """
    shifts = {solver.shift(p) for solver, p in members}
    require(len(shifts) == 1, f"configurations with {len(shifts)} different systems cannot share an inverse")
    C = tiled_inverse(X, shifts.pop(), folder, memory, dtype, resume=resume, progress=progress, flow=flow)
    diag_C, counts = C.diagonal().astype(np.float64), count_items(X.indices, X.shape[1])
    return [TiledLinearRecommender(C, *scales(solver, p, diag_C, counts)) for solver, p in members]
