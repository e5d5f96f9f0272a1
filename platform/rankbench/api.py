"""The Python interface: fit a method, recommend by raw ids, evaluate, save and load.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
"""

from __future__ import annotations

from typing import Any

from rankbench import experiment
from rankbench.data.blocks import union
from rankbench.data.cards import load_card
from rankbench.data.prepare import Dataset, prepare
from rankbench.errors import ConfigError, require
from rankbench.model import Evaluation, Model, load
from rankbench.settings import Settings
from rankbench.threads import available_cpus, pinned


def fit(
    dataset: str,
    method: str,
    *,
    fit_on: str | None = None,
    dtype: str = "float32",
    seed: int = 0,
    settings: Settings | None = None,
    **params: Any,
) -> Model:
    """Fit `method` with `params` on a dataset's train + valid part, or on train alone: by default as the protocol says.

    `dataset`: a name or the path of a card. Raises ConfigError for an unknown name, parameter or value, DataError for
    data that cannot be had or read, NumericalError where the method breaks down.
    """
    require(fit_on in (None, "train", "train+valid"), f"fit_on: expected train or train+valid, got {fit_on!r}")
    require(dtype in ("float32", "float64"), f"dtype: expected float32 or float64, got {dtype!r}")
    settings = settings or Settings.from_env()
    chosen = experiment.setting(method, params)
    card = load_card(dataset, settings)
    data: Dataset = prepare(card, settings)
    fit_on = fit_on or card.final_fit
    X = data.split.fit_matrix(fit_on)
    with pinned(available_cpus()):
        (recommender,) = experiment.fit((chosen,), X, dtype, seed)
    history = union(X, data.split.valid_history, data.split.test_history)
    about = {"card": dataset, "name": data.name, "fingerprint": data.fingerprint}
    return Model(recommender, method, chosen.resolved, about, fit_on, seed, data.users, data.items, history)


__all__ = ["ConfigError", "Evaluation", "Model", "fit", "load"]
