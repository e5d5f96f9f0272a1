"""Traits of a dataset that may decide which method wins on it, and how strongly ranks go with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from rankbench.evaluation.beyond import gini_of
from rankbench.judge.ranking import MethodRanking

LEAST = 5  # datasets below which a correlation says nothing


def traits(X: sp.csr_array) -> dict[str, float]:
    """Traits of the train part X (n_users, n_items), of users and items that occur: sizes, density, and the Gini coefficients
    of the interactions of items (skew of popularity) and of users (skew of activity).
    """
    per_user, per_item = np.diff(X.indptr), np.bincount(X.indices, minlength=X.shape[1])
    per_user, per_item = per_user[per_user > 0], per_item[per_item > 0]
    return {
        "users": float(len(per_user)),
        "items": float(len(per_item)),
        "interactions": float(X.nnz),
        "density": X.nnz / max(1, len(per_user) * len(per_item)),
        "interactions per user": float(X.nnz / max(1, len(per_user))),
        "popularity skew": gini_of(per_item),
        "activity skew": gini_of(per_user),
    }


def correlations(board: MethodRanking, of_dataset: Mapping[str, Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Spearman's correlation of each trait with the ranks of each method (n_methods,): below 0, the method is better where the
    trait is larger. NaN for ranks or traits that are equal everywhere; empty for fewer than `LEAST` datasets.
    """
    from scipy.stats import rankdata

    datasets = [i for i, name in enumerate(board.datasets) if of_dataset.get(name)]
    if len(datasets) < LEAST:
        return {}
    result = {}
    ranks = np.apply_along_axis(rankdata, 0, board.ranks[datasets])
    for trait in of_dataset[board.datasets[datasets[0]]]:
        values = rankdata([of_dataset[board.datasets[i]][trait] for i in datasets])
        a, b = values - values.mean(), ranks - ranks.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            result[trait] = (a @ b) / np.sqrt((a @ a) * (b * b).sum(axis=0))
    return result
