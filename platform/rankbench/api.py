"""The Python interface: fit a method, recommend by raw ids, evaluate, compare, save and load.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
rb.compare({"ease": model, "edlae": rb.fit("movielens-1m", "edlae", lam=400)}, metric="ndcg@20")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.memory import Spill
from rankbench.core.registry import nearest
from rankbench.data.blocks import union
from rankbench.data.cards import load_card
from rankbench.evaluation.compare import compare as compare_values
from rankbench.experiment.execution import Execution, ignore_progress
from rankbench.experiment.fit import Progress
from rankbench.experiment.fitted_model import Evaluation, Model, load
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import load_and_fit


def fit(
    dataset: str,
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

    `dataset` is a name or the path of a card; `changes` replace values of the card by dotted keys. `fit_on` is "train" or
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
    card = load_card(dataset, environment, changes)
    fit_on = fit_on or config.part_to_fit(card)
    data, fitted = load_and_fit(Job(card, (config,), fit_on, dtype=dtype, seed=seed), environment, execution, progress)
    history = union(data.split.fit_matrix(fit_on), data.split.valid_history, data.split.test_history)
    about = {"card": dataset, "changes": changes or {}, "name": data.name, "fingerprint": data.fingerprint}
    return Model(fitted.models[0], method, config.flat, about, fit_on, seed, data.users, data.items, history)


def compare(
    models: Sequence[Evaluation | Model] | Mapping[str, Evaluation | Model],
    metric: str = "ndcg@20",
    *,
    baseline: str | None = None,
    seed: int = 0,
    environment: Environment | None = None,
) -> pd.DataFrame:
    """Compare models with paired tests over users: each with the best one, and with `baseline` if it is given.

    Models are measured on test; evaluations are used as they are, and must be of the same data. Names are the keys of the
    mapping, otherwise the methods, or positions from 1 for evaluations without a method. Returns one row per pair, with the
    fields of `evaluation.compare.Comparison` and its `verdict`.

    Raises ConfigError for fewer than two models, an unknown baseline or metric, or models of different data.
    """
    named = dict(models) if isinstance(models, Mapping) else _named(models)
    require(len(named) >= 2, f"compare needs at least two models, got {len(named)}")
    samples, first = {}, None
    for name, each in named.items():
        measured = each.evaluate(metrics=[metric], environment=environment) if isinstance(each, Model) else each
        first = first or measured
        alike = (measured.dataset, measured.measured_on) == (first.dataset, first.measured_on)
        require(
            alike,
            f"{name} was measured on {measured.measured_on} of {measured.dataset}, the first on {first.measured_on} of "
            f"{first.dataset}; only evaluations on the same part of the same data can be compared",
        )
        known = [column for column in measured.per_user if column != "user"]
        hint = nearest(metric, known) or f"; it has {', '.join(known)}"
        require(metric in known, f"{name}: has no per-user values of {metric!r}{hint}")
        samples[name] = (measured.per_user["user"].to_numpy(), measured.per_user[metric].to_numpy())
    pairs = compare_values(samples, dataset=first.dataset, metric=metric, baseline=baseline, seed=seed).pairs
    return pd.DataFrame([asdict(pair) | {"verdict": pair.verdict} for pair in pairs]).drop(columns="by_split")


def _named(models: Sequence[Evaluation | Model]) -> dict[str, Evaluation | Model]:
    names = [each.method or str(position) for position, each in enumerate(models, start=1)]
    return {
        name if names.count(name) == 1 else f"{name} {position}": each
        for position, (name, each) in enumerate(zip(names, models, strict=True), start=1)
    }


__all__ = ["ConfigError", "Evaluation", "Execution", "Model", "Spill", "compare", "fit", "load"]
