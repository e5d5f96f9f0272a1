"""Traits of a dataset that may decide which method wins on it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from rankbench.evaluation.beyond import gini_of


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
