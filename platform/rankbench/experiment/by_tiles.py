"""Fit closed forms by tiles in files and rank them by columns, if their matrix does not fit into memory or is distributed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import NumericalError, StorageError
from rankbench.core.memory import Spill, dense_bytes
from rankbench.data.splits import Holdout
from rankbench.evaluation.columns import rank_by_columns_on
from rankbench.evaluation.ranking import Ranking, rank
from rankbench.experiment.job import Job
from rankbench.fitting.executors import BlockMap
from rankbench.fitting.method import ClosedForm
from rankbench.solvers.tiled.recommender import TiledLinearRecommender, fit_tiled

COLUMNS = 512 << 20  # bytes of a matrix's columns that a worker of a cluster holds


def fit_by_tiles(
    members: Sequence[tuple[ClosedForm, Any]],
    X: sp.csr_array,
    dtype: str,
    spill: Spill,
    executor: BlockMap,
    progress: Callable[..., None],
) -> list[TiledLinearRecommender]:
    """Return one model per member, a method with its parameters. The models read the tiles in the folder of `spill`.

    Raises StorageError, with both sizes, if memory or disk are not enough.
    """
    memory, number = spill.left(), np.dtype(dtype)
    try:
        with _remove_tiles_on_failure(spill):
            on_progress = partial(progress, "fit by tiles")
            how = spill.resume, on_progress, executor.flow(), spill.discard
            return fit_tiled(X, members, spill.folder, memory, number.type, *how)
    except StorageError as error:
        needed = dense_bytes(X.shape[1], number.itemsize, X.nnz) / 1e9
        what = f"the item-item matrix of {X.shape[1]:,} items needs {needed:.1f} GB of memory, {memory / 1e9:.1f} GB are free"
        raise StorageError(f"{what}; by tiles in a file: {error}") from None


def rank_by_tiles(
    job: Job,
    models: Sequence[TiledLinearRecommender],
    holdout: Holdout,
    spill: Spill,
    executor: BlockMap,
    on_progress: Callable[[int, int], None],
) -> list[Ranking]:
    """Return one ranking per model, and remove the tiles, which nothing else reads."""
    tile, n_items = models[0].C.tile, models[0].n_items
    with _remove_tiles_on_failure(spill):
        if executor.flow() is None:
            rankings = rank(models, holdout, job.metrics.k, job.metrics.auc, on_progress, columns=tile)
        else:
            width = max(1, min(tile, COLUMNS // (n_items * models[0].dtype.itemsize)))
            rankings = rank_by_columns_on(executor, models, holdout, job.metrics.k, width, job.metrics.auc, on_progress)
    shutil.rmtree(spill.folder, ignore_errors=True)
    return rankings


@contextmanager
def _remove_tiles_on_failure(spill: Spill) -> Iterator[None]:
    """Remove the tiles after a NumericalError, because a resumed run with them would only fail again."""
    try:
        yield
    except NumericalError:
        shutil.rmtree(spill.folder, ignore_errors=True)
        raise
