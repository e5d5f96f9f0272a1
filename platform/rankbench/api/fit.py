"""Fit a method on a dataset."""

from __future__ import annotations

from typing import Any

from rankbench.api.dataset import card_of
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.data.blocks import union
from rankbench.experiment.execution import Execution, ignore_progress
from rankbench.experiment.fit import Progress
from rankbench.experiment.fitted_model import Model
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import load_and_fit


def fit(
    dataset: Any,
    method: str,
    *,
    fit_on: str | None = None,
    dtype: str = "float32",
    seed: int = 0,
    environment: Environment | None = None,
    progress: Progress = ignore_progress,
    execution: Execution | None = None,
    changes: dict[str, Any] | None = None,
    **params: Any,
) -> Model:
    """Fit `method` with `params` on a dataset and return the model.

    `dataset` is a name, the path of a card, a table with the columns user and item, or anything else that `rb.dataset` takes or
    returns; `changes` replace values of a card by dotted keys. `fit_on` is "train" or
    "train+valid". By default the protocol decides, and a method that stops early on valid is fitted on train.
    `progress(phase, done, total)` is called during the fit. `execution` says how the fit is computed: by default in this
    process, without saving anything. A model whose matrix did not fit into memory reads the folder of `execution.spill`.

    Raises ConfigError for an unknown name, parameter or value, DataError for data that are not available or not readable,
    NumericalError if the method breaks down, and StorageError if memory or disk do not suffice.
    """
    require(fit_on in (None, "train", "train+valid"), f"fit_on: expected train or train+valid, got {fit_on!r}")
    require(dtype in ("float32", "float64"), f"dtype: expected float32 or float64, got {dtype!r}")
    environment = environment or Environment.from_env()
    config = configure(method, params)
    card = card_of(dataset, environment, changes)
    fit_on = fit_on or config.part_to_fit(card)
    data, fitted = load_and_fit(Job(card, (config,), fit_on, dtype=dtype, seed=seed), environment, execution, progress)
    history = union(data.split.fit_matrix(fit_on), data.split.valid_history, data.split.test_history)
    about = {"card": card.reference, "changes": card.changes, "name": data.name, "fingerprint": data.fingerprint}
    return Model(fitted.models[0], method, config.flat, about, fit_on, seed, data.users, data.items, history)
