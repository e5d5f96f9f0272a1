"""The Python interface: fit a method, recommend by raw ids, evaluate, save and load.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rankbench import experiment
from rankbench.config import parameters
from rankbench.data.blocks import csr_from_parts
from rankbench.data.cards import load_card
from rankbench.data.prepare import Dataset, prepare
from rankbench.data.splits import Holdout
from rankbench.errors import ConfigError, DataError, require
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS, measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.evaluation.summary import Interval, summarise
from rankbench.files import atomic_folder, write_json
from rankbench.recommender import FactorRecommender, LinearRecommender, LowRankRecommender, Recommender
from rankbench.settings import Settings
from rankbench.threads import available_cpus, pinned

_FORMS = {"linear": LinearRecommender, "low-rank": LowRankRecommender, "factors": FactorRecommender}
_FORMAT = 1


@dataclass(frozen=True)
class Evaluation:
    """`metrics`: name → mean with its 95 % interval; `per_user`: one row a user with test items, by raw id."""

    metrics: dict[str, Interval]
    per_user: pd.DataFrame


@dataclass(frozen=True)
class Model:
    """A fitted method with the ids and interactions it was fitted on. `fit` and `load` make one."""

    recommender: Recommender
    method: str
    params: dict[str, Any]
    dataset: dict[str, Any]
    fit_on: str
    seed: int
    users: pa.Array
    items: pa.Array
    history: sp.csr_array

    def recommend(self, user_ids: Iterable[Any], k: int = 10, filter_seen: bool = True) -> pd.DataFrame:
        """The k best items of each user: columns user, rank (from 1), item, score; raw ids in and out.

        `filter_seen` leaves out what the user met in the data the model was fitted on. A user with fewer than k
        candidates gets fewer rows. Raises ConfigError for an id the model does not know.
        """
        require(k >= 1, f"k must be at least 1, got {k}")
        ids = list(user_ids)
        rows = self._rows_of(ids)
        known = self.history[rows]
        seen = known if filter_seen else sp.csr_array(known.shape, dtype=np.float32)
        k = min(k, len(self.items))
        frames = []
        block = max(1, (8 << 20) // max(1, len(self.items)))
        with pinned(available_cpus()):
            for start in range(0, len(rows), block):
                part = slice(start, start + block)
                scores = _scores(self.recommender, rows[part], known[part])
                frames.append(_top(scores, seen[part], ids[part], self.items, k))
        columns = {"user": [], "rank": [], "item": [], "score": []}
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns)

    def evaluate(
        self,
        dataset: str | None = None,
        metrics: Sequence[str] = DEFAULT_METRICS,
        cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
        on: str = "test",
        settings: Settings | None = None,
    ) -> Evaluation:
        """Full ranking on the held-out part `on` of the dataset the model was fitted on.

        Raises ConfigError when the dataset at hand is not, byte for byte, the one of the fit, or when the model was
        fitted on what it would be measured on.
        """
        require(on in ("valid", "test"), f"on: expected valid or test, got {on!r}")
        require(on == "test" or self.fit_on == "train", f"a model fitted on {self.fit_on} cannot be measured on valid")
        settings = settings or Settings.from_env()
        data = prepare(load_card(dataset or self.dataset["card"], settings), settings)
        require(
            data.fingerprint == self.dataset["fingerprint"],
            f"{data.name} has fingerprint {data.fingerprint}, the model was fitted on {self.dataset['fingerprint']}",
        )
        holdout: Holdout = data.split.holdout(on, self.fit_on)
        wanted = metric_set(metrics, cutoffs)
        with pinned(available_cpus()):
            (ranking,) = rank([self.recommender], holdout, wanted.k, wanted.auc)
        counts = np.bincount(self.history.indices, minlength=self.history.shape[1])
        per_user = measure(ranking, holdout.target, counts, wanted)
        frame = pd.DataFrame({"user": data.users.take(pa.array(per_user.users)).to_pandas()} | per_user.values)
        return Evaluation(summarise(per_user, self.seed), frame)

    def save(self, folder: str | Path) -> Path:
        """Write model.json and arrays.safetensors into a new folder, whole or not at all.

        Raises ConfigError when the folder exists.
        """
        folder = Path(folder)
        require(not folder.exists(), f"{folder}: exists already; choose another folder")
        form = next(name for name, cls in _FORMS.items() if isinstance(self.recommender, cls))
        arrays = {f"model.{f.name}": getattr(self.recommender, f.name) for f in dataclasses.fields(self.recommender)}
        arrays |= {"history.indptr": self.history.indptr, "history.indices": self.history.indices}
        about = {
            "format": _FORMAT,
            "form": form,
            "method": self.method,
            "params": self.params,
            "dataset": self.dataset,
            "fit_on": self.fit_on,
            "seed": self.seed,
            "users": self.users.to_pylist(),
            "items": self.items.to_pylist(),
        }
        with atomic_folder(folder) as scratch:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, scratch / "arrays.safetensors")
            write_json(scratch / "model.json", about)
        return folder

    def _rows_of(self, ids: list[Any]) -> np.ndarray:
        position = {raw: row for row, raw in enumerate(self.users.to_pylist())}
        unknown = [each for each in ids if _plain(each) not in position]
        if unknown:
            more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
            raise ConfigError(f"unknown user id {unknown[0]!r}{more}")
        return np.array([position[_plain(each)] for each in ids], np.int32)


def fit(
    dataset: str,
    method: str,
    *,
    fit_on: str = "train+valid",
    dtype: str = "float32",
    seed: int = 0,
    settings: Settings | None = None,
    **params: Any,
) -> Model:
    """Fit `method` with `params` on a dataset's train + valid part (or train alone).

    `dataset`: a name or the path of a card. Raises ConfigError for an unknown name, parameter or value, DataError for
    data that cannot be had or read, NumericalError where the method breaks down.
    """
    require(fit_on in ("train", "train+valid"), f"fit_on: expected train or train+valid, got {fit_on!r}")
    require(dtype in ("float32", "float64"), f"dtype: expected float32 or float64, got {dtype!r}")
    settings = settings or Settings.from_env()
    chosen = experiment.setting(method, params)
    data: Dataset = prepare(load_card(dataset, settings), settings)
    history = data.split.fit_matrix(fit_on)
    with pinned(available_cpus()):
        (recommender,) = experiment.fit((chosen,), history, dtype, seed)
    about = {"card": dataset, "name": data.name, "fingerprint": data.fingerprint}
    return Model(recommender, method, chosen.resolved, about, fit_on, seed, data.users, data.items, history)


def load(folder: str | Path) -> Model:
    """The model that `save` wrote. Raises DataError naming the file when it is missing, damaged or of another format."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        require(about["format"] == _FORMAT, f"{folder}: format {about['format']}, this version reads {_FORMAT}")
        arrays = load_file(folder / "arrays.safetensors")
        cls = _FORMS[about["form"]]
        recommender = cls(**{f.name: arrays[f"model.{f.name}"] for f in dataclasses.fields(cls)})
        history = csr_from_parts(arrays["history.indptr"], arrays["history.indices"], len(about["items"]))
        # What came from a file is checked like any input before a solver's class is built from it.
        solver = experiment.setting(about["method"], {}).solver
        parameters(solver.params, about["params"], f"{folder}/model.json")
        users, items = pa.array(about["users"]), pa.array(about["items"])
        consistent = recommender.n_items == len(items) and history.shape[0] == len(users)
        if not consistent:
            raise DataError(f"{folder}: the arrays do not fit the ids")
        return Model(
            recommender,
            about["method"],
            about["params"],
            about["dataset"],
            about["fit_on"],
            about["seed"],
            users,
            items,
            history,
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(f"{folder}: not a saved model ({type(error).__name__}: {str(error).splitlines()[0]})") from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _scores(model: Recommender, rows: np.ndarray, known: sp.csr_array) -> np.ndarray:
    from rankbench.recommender import score

    return score(model, rows, known, slice(0, model.n_items))


def _top(scores: np.ndarray, seen: sp.csr_array, ids: list[Any], items: pa.Array, k: int) -> pd.DataFrame:
    scores[np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr)), seen.indices] = -np.inf
    # A stable sort of the negated scores keeps the lower item id first among equals.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    listed = best > -np.inf
    users = np.repeat(np.asarray(ids, dtype=object), listed.sum(axis=1))
    ranks = np.broadcast_to(np.arange(1, k + 1), order.shape)[listed]
    return pd.DataFrame(
        {"user": users, "rank": ranks, "item": items.take(pa.array(order[listed])).to_pandas(), "score": best[listed]}
    ).infer_objects()


__all__ = ["ConfigError", "Evaluation", "Model", "fit", "load"]
