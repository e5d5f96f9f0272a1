"""A fitted method with its ids and interactions: recommend, find similar items and evaluate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp

from rankbench.core.display import as_html, as_text
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, first_line, require, shown
from rankbench.core.memory import available_memory
from rankbench.core.plain import whole_number
from rankbench.core.public import public
from rankbench.core.threads import own_threads, pinned
from rankbench.data.blocks import csr_from_pairs
from rankbench.data.cards import load_card
from rankbench.data.interactions import near_id, positions_of
from rankbench.data.prepare import Dataset, prepare
from rankbench.data.splits import Holdout, self_pairs
from rankbench.evaluation.cold_users import rank_all
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS, asked_in_python, measure, require_within
from rankbench.evaluation.ranking import Ranking, rank
from rankbench.evaluation.summary import summarise
from rankbench.experiment.evaluation import Evaluation
from rankbench.experiment.job import configure
from rankbench.experiment.model_files import FittedOn, Part, load_model, save_model
from rankbench.experiment.run import require_fold_in
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import FactorRecommender, Recommender, SparseRecommender
from rankbench.solvers.tiled.recommender import TiledLinearRecommender
from rankbench.tracking.record import ties_in_words

log = logging.getLogger(__name__)
Unknown = Literal["skip", "popularity", "error"]
UNKNOWN = get_args(Unknown)
PARTS = {"train": "train", "train+valid": "train and valid", "all": "train, valid and test"}  # in words


@dataclass(frozen=True, repr=False)
class Model:
    """A fitted method with the ids of its users and items, as returned by `fit` and `load`.

    `history` (n_users, n_items): the known interactions of each user, which are those of the fit, and the fold-in of users who
    were held out. `iterations`: the number after which the model was taken, if valid chose it.
    """

    recommender: Recommender
    method: str
    params: dict[str, Any]
    dataset: FittedOn
    fit_on: Part
    seed: int
    users: pa.Array
    items: pa.Array
    history: sp.csr_array
    iterations: int | None = None

    @property
    def facts(self) -> dict[str, str]:
        """What was fitted, on which data, in words."""
        params = " ".join(f"{name}={value}" for name, value in self.params.items() if value is not None)
        data = f"{PARTS[self.fit_on]} of {self.dataset['name']}, seed {self.seed}"
        if self.iterations is not None:
            data += f"; valid chose iteration {self.iterations}"
        sizes = f"{len(self.users):,} users, {len(self.items):,} items, {self.history.nnz:,} interactions"
        return ({"parameters": params} if params else {}) | {"fitted on": data, "size": sizes}

    def __repr__(self) -> str:
        return as_text(f"Model {self.method}", self.facts)

    def _repr_html_(self) -> str:
        return as_html(f"Model {self.method}", self.facts)

    @public
    def recommend(
        self,
        user_ids: Any,
        k: int = 10,
        filter_seen: bool = True,
        unknown: Unknown = "error",
        warn: Callable[[str], Any] = log.warning,
    ) -> pd.DataFrame:
        """Return the k best items of each user, with raw ids: columns user, rank (from 1), item and score.

        `user_ids` is a list, an array or a column of ids, or one id. `filter_seen` leaves out items in the user's history. In
        data of links, a page is not recommended to itself, unless it was a candidate in the evaluation. A user with fewer than
        k candidates gets fewer rows; items that are no neighbours of the history, in models of neighbours, are none.

        `unknown`: what is done about users who have no interactions in the data of the fit, whose ids may be new. "error"
        raises ConfigError, "skip" leaves them out, and "popularity" gives them the items with the most users, whose number is
        the score. `warn` is called with a sentence that counts them.

        The history is what the model was fitted on, so lists can hold items that a user has in the other parts: in test unless
        `fit_on` is "all", and in the validation part, which `evaluate` leaves out on test, after a fit on train alone.
        """
        ids = _ids(_as_list(user_ids), "user ids")
        if pa.types.is_integer(self.users.type) and (pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type)):
            with suppress(pa.ArrowInvalid):  # 1.5 is no known id
                ids = ids.cast(self.users.type)
        found = positions_of(ids, self.users)
        cold = (found < 0) | (np.diff(self.history.indptr)[found] == 0)
        others = self._of_unknown(ids, cold, k, unknown, warn)
        rows = found[~cold]
        lists = self._best("user", self.users.take(pa.array(rows)), rows, self.history[rows], k, filter_seen)
        return _in_order(lists, cold, others)

    @public
    def recommend_new(
        self,
        interactions: Any,
        k: int = 10,
        filter_seen: bool = True,
        unknown: Unknown = "skip",
        warn: Callable[[str], Any] = log.warning,
    ) -> pd.DataFrame:
        """Recommend to users who were not fitted (fold-in). `interactions` has the columns user and item with raw ids.

        Items that the model does not know are left out of a history, and counted in a sentence for `warn`. `unknown` says what
        is done about users without other items, as in `recommend`. Raises ConfigError if a column is missing, or if the model
        can only score fitted users.
        """
        why = f"{self.method} has vectors only for the users of its fit; choose a method that folds in new users"
        require(self.folds_in, why)
        if not isinstance(interactions, pd.DataFrame) and hasattr(interactions, "__arrow_c_stream__"):
            interactions = pa.table(interactions).to_pandas()
        require(isinstance(interactions, pd.DataFrame), f"interactions: expected a table, got {shown(interactions)}")
        present = [str(each) for each in interactions.columns]
        for column in ("user", "item"):
            require(column in interactions, f"interactions: no column {column!r}; columns: {', '.join(present)}")
            require(present.count(column) == 1, f"interactions: {present.count(column)} columns are called {column!r}")
            missing = np.flatnonzero(interactions[column].isna())
            if len(missing):
                raise ConfigError(f"interactions: row {missing[0]} has no {column}; leave such rows out")
        items = _ids(interactions["item"], "interactions: item")
        users = _ids(interactions["user"], "interactions: user").dictionary_encode()
        found = positions_of(items, self.items)
        known = found >= 0
        if not known.all():
            first = items[int(np.argmin(known))].as_py()
            left_out = f"{np.count_nonzero(~known):,} of {len(items):,} interactions"
            warn(f"{left_out} are with items that the model does not know, such as {shown(first)}, and are left out")
        shape = (len(users.dictionary), len(self.items))
        history = csr_from_pairs(users.indices.to_numpy()[known], found[known], shape)
        cold = np.diff(history.indptr) == 0
        others = self._of_unknown(users.dictionary, cold, k, unknown, warn)
        # Rows beyond those of the fitted users, whose vectors must not be used.
        rows = len(self.users) + np.flatnonzero(~cold)
        lists = self._best("user", users.dictionary.filter(pa.array(~cold)), rows, history[~cold], k, filter_seen)
        return _in_order(lists, cold, others)

    def _of_unknown(self, ids: pa.Array, cold: np.ndarray, k: int, how: Unknown, warn: Callable[[str], Any]) -> pd.DataFrame:
        """Return the lists of the unknown users among `ids`, those of the mask `cold`, and warn of them. The index
        is the position among `ids`.
        """
        others = ids.filter(pa.array(cold))
        if len(others):
            first, is_new = others[0].as_py(), positions_of(others[:1], self.users)[0] < 0
            said = (
                f"unknown user id {first!r}{near_id(first, self.users)}"
                if is_new
                else f"user {first!r} has no known interactions"
            )
            said += f" ({len(others):,} such of {len(ids):,} users)"
            require(how != "error", f"{said}; unknown: skip leaves them out, popularity gives them popular items")
            warn(f"{said}; they get {'the most popular items' if how == 'popularity' else 'no items'}")
        others = others if how == "popularity" else others[:0]
        counts = np.bincount(self.history.indices, minlength=len(self.items)).astype(np.float32)
        popular = FactorRecommender(np.ones((1, 1), np.float32), counts[:, None])
        nothing = sp.csr_array((len(others), len(self.items)), dtype=np.float32)
        rows = np.zeros(len(others), np.int32)
        lists = self._best("user", others, rows, nothing, k, True, popular)
        return lists.set_axis(np.flatnonzero(cold)[lists.index])

    @public
    def similar(self, item_ids: Any, k: int = 10) -> pd.DataFrame:
        """Return the k most similar items of each item: columns item, rank (from 1), similar and score.

        `item_ids` is a list, an array or a column of ids, or one id.

        Item-item models and autoencoders: the recommendations for a history of only that item. Models with a vector per item:
        the cosine of these, also where the score of a user is no product. Raises ConfigError for an id that the model does not
        know, and for an item without interactions in the data of the fit, of which it has learned nothing.
        """
        ids = _ids(_as_list(item_ids), "item ids")
        rows = positions_of(ids, self.items)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            name, more = ids[int(unknown[0])].as_py(), f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise ConfigError(f"unknown item id {name!r}{more}{near_id(name, self.items)}")
        for at in np.flatnonzero(np.bincount(self.history.indices, minlength=len(self.items))[rows] == 0)[:1]:
            raise ConfigError(f"item {ids[int(at)].as_py()!r} has no interactions in the data of the fit; leave it out")
        single = csr_from_pairs(np.arange(len(rows)), rows, (len(rows), len(self.items)))
        model = self.recommender
        if isinstance(model, FactorRecommender | PairRecommender):
            config = configure(self.method, self.params)
            vectors = model.V[:, : model.V.shape[1] - config.spec.helper_columns(config.params)]
            require(vectors.shape[1] > 1, f"{self.method} has one number for each item, which does not say which are alike")
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / np.where(lengths > 0, lengths, 1)
            model = FactorRecommender(unit, unit)
        found = self._best("item", self.items.take(pa.array(rows)), rows, single, k, True, model)
        return found.reset_index(drop=True)

    @property
    def first_known_user(self) -> Any:
        """The id of the first user with a history, for examples."""
        return self.users[int(np.argmax(np.diff(self.history.indptr) > 0))].as_py()

    @property
    def folds_in(self) -> bool:
        """Whether the model can score users who were not fitted, from their history."""
        return scores_histories(self.recommender)

    def _best(
        self,
        name: str,
        ids: pa.Array,
        rows: np.ndarray,
        history: sp.csr_array,
        k: int,
        filter_seen: bool,
        model: Recommender | None = None,
    ) -> pd.DataFrame:
        """Return the k best items of each row of `history`: columns `name`, which is user or item, rank, item or similar, and
        score. The index is the position of the row. In data of links whose evaluation excludes it as a candidate, a user is not
        recommended the item with the user's id.
        """
        k = whole_number("k", k, 1)
        require(k <= len(self.items), f"k = {k} is more than the {len(self.items):,} items of the model")
        nothing = sp.csr_array(history.shape, dtype=np.float32)
        excluded = self_pairs(ids, self.items) if name == "user" and self.dataset.get("self_excluded") else None
        holdout = Holdout(rows.astype(np.int32), history, nothing, excluded, filter_seen)
        with pinned(own_threads()):
            ranking = _ranked(model or self.recommender, holdout, k, rows=np.arange(len(rows)))
        listed = ranking.items >= 0
        if isinstance(model or self.recommender, SparseRecommender):
            listed &= ranking.scores != 0
        at = np.repeat(np.arange(len(rows)), listed.sum(axis=1))
        result = {
            name: ids.take(pa.array(at)).to_pandas(),
            "rank": np.broadcast_to(np.arange(1, k + 1), listed.shape)[listed],
            "similar" if name == "item" else "item": self.items.take(pa.array(ranking.items[listed])).to_pandas(),
            "score": ranking.scores[listed],
        }
        return pd.DataFrame(result).set_axis(at)

    @public
    def evaluate(
        self,
        dataset: str | Path | Dataset | None = None,
        metrics: str | Sequence[str] = DEFAULT_METRICS,
        cutoffs: int | Sequence[int] = DEFAULT_CUTOFFS,
        on: Literal["test", "valid"] = "test",
        environment: Environment | None = None,
    ) -> Evaluation:
        """Evaluate the full ranking on the held-out part `on` of the dataset that the model was fitted on.

        `metrics`, `cutoffs`: one or several; a metric with its own cutoff, such as "ndcg@100", is used unchanged.

        Raises ConfigError if the dataset is not exactly the one of the fit, if the model was fitted on the part to measure, if
        it only scores fitted users and the part has others, and for a cutoff beyond the items of the dataset.
        """
        wanted, option = asked_in_python(metrics, cutoffs)
        left = {"train": ("valid", "test"), "train+valid": ("test",)}.get(self.fit_on, ())
        require(on in left, f"a model fitted on {PARTS[self.fit_on]} cannot be measured on {on}")
        environment = environment or Environment.from_env()
        if isinstance(dataset, Dataset):
            card = dataset.card
        else:
            changes = self.dataset.get("changes") if dataset is None else None
            card = load_card(self.dataset["card"] if dataset is None else str(dataset), environment, changes)
        data = prepare(card, environment)
        require(
            data.fingerprint == self.dataset["fingerprint"],
            f"{data.name} has fingerprint {data.fingerprint}, the model was fitted on {self.dataset['fingerprint']}",
        )
        # The fingerprint is that of the interactions by position, whatever their users and items are called.
        same = data.users.equals(self.users) and data.items.equals(self.items)
        require(same, f"{data.name} has other ids of users or items than the data that the model was fitted on")
        holdout: Holdout = data.split.holdout(on, self.fit_on)
        train = data.split.fit_matrix(self.fit_on)
        require_fold_in((configure(self.method, self.params),), holdout, train, data.name)
        if option:
            require_within(wanted, len(data.items), data.name, option)
        with pinned(own_threads()):
            ranking = rank_all(
                lambda warm, rows: [_ranked(self.recommender, warm, wanted.k, wanted.auc, rows)],
                [self.recommender], holdout, wanted.k, wanted.auc,
            )[0]  # fmt: skip
        per_user = measure(ranking, holdout, wanted, train)
        frame = pd.DataFrame({"user": data.users.take(pa.array(per_user.users)).to_pandas()} | per_user.columns)
        left_out = int(holdout.cold.sum()) if holdout.cold_users == "drop" else 0
        ties = ties_in_words(ranking.n_tied, len(per_user.users))
        about = self.method, data.fingerprint, on, left_out, (ties,) if ties else (), self.fit_on
        return Evaluation(summarise(per_user, self.seed), frame, *about)

    @public
    def save(self, folder: str | Path) -> Path:
        """Write the model to a new folder, atomically: model.json, arrays.safetensors, and the tiles of a tiled matrix.

        model.json has the checksum of the arrays; tiles have none. Raises ConfigError if the folder exists.
        """
        save_model(self, Path(folder))
        return Path(folder)


def scores_histories(model: Recommender) -> bool:
    """Whether a model scores items from the history of a user, and not from a vector of the user's own."""
    return type(model) not in (FactorRecommender, PairRecommender)


@public
def load(folder: str | Path) -> Model:
    """Load a model that `save` wrote. Raises DataError naming the file if it is missing, damaged or of another format."""
    return Model(**load_model(Path(folder)))


def _as_list(values: Any) -> list[Any]:
    """Return one or several values as a list; a string or a number is one, and not a sequence of letters."""
    require(isinstance(values, Iterable) or np.isscalar(values), f"expected an id or several, got {shown(values)}")
    require(not isinstance(values, pd.DataFrame | Mapping), "expected an id or several, got a table; give its column")
    require(np.ndim(values) < 2 if isinstance(values, np.ndarray) else True, "expected an id or several, got a matrix")
    return [values] if isinstance(values, str | bytes) or np.isscalar(values) else list(values)


def _ids(column: pd.Series | list[Any], what: str) -> pa.Array:
    """Return ids as one array, since pandas may keep strings in several chunks.

    Raises ConfigError if they are not of one type.
    """
    try:
        array = pa.array(column)
        if pa.types.is_binary(array.type):
            array.cast(pa.string())  # raises for bytes that are no text, which no known id is
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{what}: expected ids of one type, numbers or strings ({first_line(error)})") from None
    require(not pa.types.is_nested(array.type), f"{what}: expected ids, got lists of them")
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    # A column of categories that was filtered still has those that are left out.
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _in_order(lists: pd.DataFrame, cold: np.ndarray, others: pd.DataFrame) -> pd.DataFrame:
    """Return the lists of the users who are not `cold` and those of the others, in the order in which they were asked for."""
    lists = lists.set_axis(np.flatnonzero(~cold)[lists.index])
    frames = [frame for frame in (lists, others) if len(frame)] or [lists]
    if len({frame["user"].dtype for frame in frames}) > 1:  # users are numbers, and the id of an unknown one is a word
        frames = [frame.assign(user=frame["user"].astype(str)) for frame in frames]
    return pd.concat(frames).sort_index(kind="stable").reset_index(drop=True)


def _ranked(model: Recommender, holdout: Holdout, k: int, auc: bool = False, rows: np.ndarray | None = None) -> Ranking:
    """Rank all items. A matrix in a file is read by as many columns as fit into half of the free memory."""
    width = model.C.columns_within(available_memory() // 2) if isinstance(model, TiledLinearRecommender) else None
    return rank([model], holdout, k, auc, rows=rows, columns=width)[0]
