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
from rankbench.experiment.execution import Execution, progress_to_nobody
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
    progress: Progress = progress_to_nobody,
    execution: Execution | None = None,
    changes: dict[str, Any] | None = None,
    **params: Any,
) -> Model:
    """Fit `method` with `params` on a dataset's train + valid part, or on train alone: by default as the protocol says, and
    on train where valid says when training ends.

    `dataset`: a name or the path of a card, in which `changes`, by dotted keys, replace what it says. `progress(phase, done,
    total)` is called throughout. `execution`: how the fit is computed, by default in this process, saving nothing. A model
    whose matrix did not fit into memory reads the folder of `execution.spill`.

    Raises ConfigError for an unknown name, parameter or value, DataError for data that cannot be had or read, NumericalError
    where the method breaks down, StorageError when memory or disk do not suffice.
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
    """Paired tests over users: every model against the best one, and against `baseline` where one is named.

    A model is measured on test; an evaluation is taken as it is, and must be of the same data as the others. Names are the
    mapping's, else the methods, or places from 1 where an evaluation names none. Returns a row a pair: the fields of
    evaluation.compare.Comparison, which says what each of them is, and `verdict`.
    Raises ConfigError for fewer than two, an unknown baseline or metric, or models of different data.
    """
    named = dict(models) if isinstance(models, Mapping) else _named(models)
    require(len(named) >= 2, f"compare needs two models or more, got {len(named)}")
    samples, first = {}, None
    for name, each in named.items():
        measured = each.evaluate(metrics=[metric], environment=environment) if isinstance(each, Model) else each
        first = first or measured
        alike = (measured.dataset, measured.measured_on) == (first.dataset, first.measured_on)
        require(
            alike,
            f"{name} was measured on {measured.measured_on} of {measured.dataset}, the first on {first.measured_on} of "
            f"{first.dataset}; only what was measured alike can be compared",
        )
        known = [column for column in measured.per_user if column != "user"]
        hint = nearest(metric, known) or f"; it has {', '.join(known)}"
        require(metric in known, f"{name}: no per-user values of {metric!r}{hint}")
        samples[name] = (measured.per_user["user"].to_numpy(), measured.per_user[metric].to_numpy())
    pairs = compare_values(samples, dataset=first.dataset, metric=metric, baseline=baseline, seed=seed).pairs
    return pd.DataFrame([asdict(pair) | {"verdict": pair.verdict} for pair in pairs]).drop(columns="by_split")


def _named(models: Sequence[Evaluation | Model]) -> dict[str, Evaluation | Model]:
    names = [each.method or str(place) for place, each in enumerate(models, start=1)]
    return {
        name if names.count(name) == 1 else f"{name} {place}": each
        for place, (name, each) in enumerate(zip(names, models, strict=True), start=1)
    }


__all__ = ["ConfigError", "Evaluation", "Execution", "Model", "Spill", "compare", "fit", "load"]
