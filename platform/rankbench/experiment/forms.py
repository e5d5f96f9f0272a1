"""The shapes of the arrays of fitted models, which compiled loops do not check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import require, shown
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import (
    AutoencoderRecommender,
    FactorRecommender,
    LinearRecommender,
    LowRankRecommender,
    Recommender,
    SparseRecommender,
)
from rankbench.solvers.als.fold_in import FoldInRecommender
from rankbench.solvers.tiled.recommender import TiledLinearRecommender

# The name of each form in saved models, and the shapes of its arrays. i: items, u: users, n: items + 1, any other letter: a
# dimension that several arrays share.
_FORMS: dict[str, tuple[type[Recommender], dict[str, str]]] = {
    "linear": (LinearRecommender, {"C": "ii", "beta": "i", "alpha": "i"}),
    "low-rank": (LowRankRecommender, {"A": "ik", "B": "ik", "alpha": "i"}),
    "sparse": (SparseRecommender, {"indptr": "n", "indices": "w", "data": "w"}),
    "factors": (FactorRecommender, {"U": "uk", "V": "ik"}),
    "factors with fold-in": (FoldInRecommender, {"U": "uk", "V": "ik", "loss": "n5"}),
    "linear by tiles": (TiledLinearRecommender, {"C": "ii", "beta": "i", "alpha": "i"}),
    "autoencoder": (
        AutoencoderRecommender,
        {"Q1": "ia", "q1": "a", "Q2": "ad", "q2": "d", "P1": "db", "p1": "b", "V": "iv"},
    ),
    # It checks its other arrays itself.
    "pairs": (PairRecommender, {"A": "uh", "C": "ih", "U": "uk", "V": "ik", "mix": "kh", "direct": "k"}),
}
FORMS = {name: form for name, (form, _) in _FORMS.items()}
WHOLE = {"indptr", "indices", "widths"}  # arrays of whole numbers, which forms check themselves
_SHAPES = dict(_FORMS.values())


def misshapen(form: type, shapes: Mapping[str, tuple[int, ...]], n_users: int, n_items: int) -> str:
    """Return the name of the first array of a form whose shape does not fit; empty if all do."""
    sizes = {"i": n_items, "u": n_users, "n": n_items + 1, "5": 5}
    for name, letters in _SHAPES.get(form, {}).items():
        expected = tuple(sizes.setdefault(letter, size) for letter, size in zip(letters, shapes[name], strict=False))
        if shapes[name] != expected or len(letters) != len(expected):
            return name
    return ""


def misfit(model: Recommender, n_users: int, n_items: int) -> str:
    """Return what is wrong with an array of a model of one of these forms; empty if all have the right shape and type."""
    arrays = {name: getattr(model, name) for name in _SHAPES.get(type(model), ())}
    for name, array in arrays.items():
        dtype = getattr(array, "dtype", type(array).__name__)
        expected = (np.int32, np.int64) if name in WHOLE else (np.float32, np.float64)
        if not hasattr(array, "shape") or dtype not in expected:
            return f"{name} is {dtype}"
    wrong = misshapen(type(model), {name: array.shape for name, array in arrays.items()}, n_users, n_items)
    return f"{wrong} is {arrays[wrong].dtype} {arrays[wrong].shape}" if wrong else ""


def checked_model(model: Any, X: sp.csr_array, method: str) -> Recommender:
    """Return what a method made of X (n_users, n_items). Raises ConfigError if that is no recommender for it."""
    advice = "rankbench check FILE tests it"
    # Of a form with wrong arrays even n_items may fail, which isinstance reads.
    is_one = type(model) in _SHAPES or (isinstance(model, Recommender) and not isinstance(model, type))
    require(is_one, f"method {method}: returned {shown(model)} instead of a recommender; {advice}")
    problem = misfit(model, *X.shape)
    require(
        not problem, f"method {method}: {problem}, and does not fit {X.shape[0]:,} users and {X.shape[1]:,} items; {advice}"
    )
    return model
