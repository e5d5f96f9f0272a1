"""The shapes of the arrays of fitted models, which compiled loops do not check."""

from __future__ import annotations

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
)
from rankbench.solvers.als.fold_in import FoldInRecommender
from rankbench.solvers.tiled.recommender import TiledLinearRecommender

_SHAPES = {  # i: items, u: users, n: items + 1, any other letter: a dimension that several arrays share
    LinearRecommender: {"C": "ii", "beta": "i", "alpha": "i"},
    LowRankRecommender: {"A": "ik", "B": "ik", "alpha": "i"},
    FactorRecommender: {"U": "uk", "V": "ik"},
    FoldInRecommender: {"U": "uk", "V": "ik", "loss": "n5"},
    TiledLinearRecommender: {"C": "ii", "beta": "i", "alpha": "i"},
    AutoencoderRecommender: {"Q1": "ia", "q1": "a", "Q2": "ad", "q2": "d", "P1": "db", "p1": "b", "V": "iv"},
    PairRecommender: {"A": "uh", "C": "ih", "U": "uk", "V": "ik", "mix": "kh", "direct": "k"},  # it checks the others itself
}


def misfit(model: Recommender, n_users: int, n_items: int) -> str:
    """Return what is wrong with an array of a model of one of these forms; empty if all have the right shape and type."""
    sizes = {"i": n_items, "u": n_users, "n": n_items + 1, "5": 5}
    for name, letters in _SHAPES.get(type(model), {}).items():
        array = getattr(model, name)
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
        if shape is None or dtype not in (np.float32, np.float64):
            return f"{name} is {type(array).__name__ if shape is None else dtype}"
        expected = tuple(sizes.setdefault(letter, size) for letter, size in zip(letters, shape, strict=False))
        if shape != expected or len(letters) != len(shape):
            return f"{name} is {dtype} {shape}"
    return ""


def checked_model(model: Any, X: sp.csr_array, method: str) -> Recommender:
    """Return what a method made of X (n_users, n_items). Raises ConfigError if that is no recommender for it."""
    advice = "rankbench check FILE tests it"
    is_one = isinstance(model, Recommender) and not isinstance(model, type)
    require(is_one, f"method {method}: returned {shown(model)} instead of a recommender; {advice}")
    problem = misfit(model, *X.shape)
    require(
        not problem, f"method {method}: {problem}, and does not fit {X.shape[0]:,} users and {X.shape[1]:,} items; {advice}"
    )
    return model
