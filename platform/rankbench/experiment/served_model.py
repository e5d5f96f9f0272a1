"""A saved model as MLflow loads and serves it. MLflow finds this module by its name, which the file MLmodel contains.

The model is data only, safetensors and JSON, so that nothing is unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from rankbench.experiment.fitted_model import Model, load
from rankbench.tracking.refusals import clear_refusals

DEFAULTS: dict[str, Any] = {"k": 10, "filter_seen": True}  # parameters of a request


@dataclass(frozen=True)
class ServedModel:
    """Answers MLflow's requests with recommendations by raw ids."""

    model: Model

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the best items of the users in the column `user`: columns user, rank (from 1), item and score.

        Raises MlflowException for an unknown user or a k that is larger than the catalogue.
        """
        given = DEFAULTS | (params or {})
        with clear_refusals():
            return self.model.recommend(model_input["user"].tolist(), int(given["k"]), bool(given["filter_seen"]))


def _load_pyfunc(path: str) -> ServedModel:
    return ServedModel(load(path))
