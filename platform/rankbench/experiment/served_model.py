"""A saved model as MLflow loads and serves it. MLflow finds this module by its name, which the file MLmodel contains.

The model is data only, safetensors and JSON, so that nothing is unpickled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rankbench.core.errors import ConfigError, require
from rankbench.data.interactions import positions_of
from rankbench.experiment.fitted_model import Model, load
from rankbench.tracking.model_registry import clear_refusals

log = logging.getLogger(__name__)
DEFAULTS: dict[str, Any] = {"k": 10, "filter_seen": True, "unknown": "skip"}  # parameters of a request
HISTORY = "history"  # optional column: lists of item ids


@dataclass(frozen=True)
class ServedModel:
    """Answers MLflow's requests with recommendations by raw ids."""

    model: Model

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the best items of the users in the column `user`, in its order: columns user, rank (from 1), item and score.

        A user with a list of items in the column `history` is scored from it, as one who is new to the model; an empty list is
        no history. The parameter `unknown` says what unknown users get, as in `Model.recommend`. They, and unknown items of
        histories, are counted in the log. Raises MlflowException if nobody is left, and for a k that is larger than the
        catalogue.
        """
        given, said, frames, asked = DEFAULTS | (params or {}), list[str](), [], model_input["user"]
        how = {"k": int(given["k"]), "filter_seen": bool(given["filter_seen"]), "unknown": given["unknown"]}
        histories = model_input[HISTORY] if HISTORY in model_input else pd.Series(None, model_input.index, dtype=object)
        listed = histories.map(lambda each: isinstance(each, list | tuple | np.ndarray)).to_numpy(bool)
        new = listed & histories.map(lambda each: np.size(each) > 0).to_numpy(bool)
        with clear_refusals():
            wrong = next((each for each in histories[~listed] if not pd.isna(each)), None)
            require(wrong is None, f"{HISTORY}: expected a list of item ids, got {wrong!r}")
            if new.any() and len(twice := asked[asked.duplicated()]):
                raise ConfigError(f"user: {twice.tolist()[0]!r} has two rows; beside histories, give each row an id of its own")
            if not new.all():
                frames.append(self.model.recommend(asked[~new].tolist(), warn=said.append, **how))
            if new.any():
                met = pd.DataFrame({"user": asked[new], "item": histories[new]}).explode("item")
                frames.append(self.model.recommend_new(met.infer_objects(), warn=said.append, **how))
            table = frames[0] if len(frames) == 1 else _in_order_of(asked, frames, (~new, new))
            require(len(table) > 0 or not said, "; ".join(said))
        for line in said:
            log.warning(line)
        return table


def _in_order_of(asked: pd.Series, frames: Sequence[pd.DataFrame], parts: Sequence[np.ndarray]) -> pd.DataFrame:
    """Return the lists of the `parts` of a request, masks of `asked`, in its order. No id is asked for twice."""
    placed = []
    for lists, part in zip(frames, parts, strict=True):
        codes, users = pd.factorize(lists["user"])
        found = positions_of(pa.array(asked[part].tolist()), pa.array(users))
        rows = np.full(len(users), len(asked))
        rows[found[found >= 0]] = np.flatnonzero(part)[found >= 0]
        placed.append(lists.set_axis(rows[codes]))
    return pd.concat(placed).sort_index(kind="stable").reset_index(drop=True)


def _load_pyfunc(path: str) -> ServedModel:
    return ServedModel(load(path))
