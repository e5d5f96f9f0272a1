r"""ItemKNN, item-based neighbours for implicit feedback (Deshpande and Karypis, TOIS 2004), with the similarities, weights of
interactions and ranges of the strong baseline of Dacrema et al. (RecSys 2019).

$$\begin{aligned} y_{uj} &= \sum_{i \in I_u,\, i \in N_k(j)} s_{ij}, \qquad
c_{ij} = \sum_{v \in U_i \cap U_j} a_v^2\, b_i b_j, \quad n_i = c_{ii} \\
\text{asymmetric cosine:} \quad s_{ij} &= \frac{c_{ij}}{n_i^\alpha\, n_j^{1 - \alpha} + h} \\
\text{Tversky:} \quad s_{ij} &= \frac{c_{ij}}{c_{ij} + \alpha (n_j - c_{ij}) + \beta (n_i - c_{ij}) + h} \end{aligned}$$

N_k(j) are the k items that are most similar to j, and h is the shrinkage. The cosine is the asymmetric one (Aiolli, RecSys
2013) with α = 1/2; Jaccard and Dice are Tversky's with α = β = 1 and 1/2. An interaction of user v with item i has the weight
a_v b_i, which is 1, or, for the cosines on request, that of tf-idf or BM25 with an item as a document and its users as words:
a_v = log(n_items / (1 + |I_v|)), and for BM25 b_i = (κ + 1) / (1 + κ (1 − ϕ + ϕ |U_i| / mean)), κ = 1.2, ϕ = 0.75.

Differs from the papers: the interactions of a user whose scores are computed count 1 each, whatever the weighting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.errors import require
from rankbench.core.params import Choice, Params, Range, param, used_names
from rankbench.data.blocks import by_item
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import SparseRecommender
from rankbench.solvers.sparse.columns import Column, by_columns, largest

KAPPA, PHI = 1.2, 0.75


@dataclass(frozen=True)
class ItemKNN(Params):
    neighbours: int = param(100, "number k of neighbours of a target item", Range(5, 1000, log=True), gt=0)
    shrink: float = param(10.0, "shrinkage h, by which similarities of rare items are less", Range(0, 1000, log=True), ge=0)
    similarity: Literal["cosine", "asymmetric", "jaccard", "dice", "tversky"] = param(
        "cosine", "similarity of two items", Choice("cosine", "asymmetric", "jaccard", "dice", "tversky")
    )
    alpha: float = param(
        0.5, "exponent or weight α; 1 in the asymmetric cosine is the share of the users of the item in the history",
        Range(0, 2), lambda p: p.similarity in ("asymmetric", "tversky"), ge=0,
    )  # fmt: skip
    beta: float = param(0.5, "weight β of Tversky's similarity", Range(0, 2), lambda p: p.similarity == "tversky", ge=0)
    weighting: Literal["none", "tf-idf", "bm25"] = param(
        "none", "weights of interactions, of which active users have less", Choice("none", "tf-idf", "bm25"),
        lambda p: p.similarity in ("cosine", "asymmetric"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        finite = self.similarity != "asymmetric" or self.alpha <= 2  # similarities of float32 would overflow
        require(finite, f"alpha, an exponent of the asymmetric cosine, must be ≤ 2, got {self.alpha}")


@direct(
    "itemknn",
    ItemKNN,
    identity=lambda p: ("itemknn", *((name, getattr(p, name)) for name in used_names(p))),
    families=("baseline", "neighbours"),
    title="ItemKNN: the most similar items of each item",
    source="Deshpande and Karypis, TOIS 2004; Dacrema et al., RecSys 2019",
    sparse=True,
)
def itemknn(X: sp.csr_array, p: ItemKNN, seed: int) -> SparseRecommender:
    """Fit in time Σ_u |I_u|². Sums are float64, and a similarity is rounded to float32 before neighbours are chosen."""
    item_ptr, item_users, _ = by_item(X.indptr, X.indices, X.shape[1])
    counts = np.diff(item_ptr).astype(np.float64)
    a, b = np.ones(X.shape[0]), np.ones(X.shape[1])
    if "weighting" in used_names(p) and p.weighting != "none":
        a = np.log(X.shape[1] / (1.0 + np.diff(X.indptr)))
        if p.weighting == "bm25":
            b = (KAPPA + 1) / (1 + KAPPA * (1 - PHI + PHI * counts / max(counts.mean(), 1e-12)))
    squares = a * a
    n = b * b * np.bincount(X.indices, weights=np.repeat(squares, np.diff(X.indptr)), minlength=X.shape[1])
    if "weighting" in used_names(p):
        alpha = p.alpha if p.similarity == "asymmetric" else 0.5
        positive = np.where(n > 0, n, 1.0)  # items with n = 0 are similar to none
        own, of_history, of_target = 0.0, positive**alpha, positive ** (1 - alpha)
    else:
        alpha, beta = {"jaccard": (1.0, 1.0), "dice": (0.5, 0.5)}.get(p.similarity, (p.alpha, p.beta))
        own, of_history, of_target = 1 - alpha - beta, beta * n, alpha * n
    terms = squares, b, of_history, of_target, own, p.shrink, "weighting" in used_names(p)

    def columns(block: range) -> list[Column]:
        scratch = np.zeros(X.shape[1]), np.zeros(X.shape[1], np.bool_), np.empty(X.shape[1], np.int32)
        data = item_ptr, item_users, X.indptr, X.indices, *scratch
        return [_column(j, p.neighbours, *data, *terms) for j in block]

    return by_columns(columns, X.shape[1])


@numba.njit(nogil=True, cache=True)
def _column(
    j, k, item_ptr, item_users, user_ptr, user_items, sums, met, items, squares, b, of_history, of_target, own, shrink, cosine
):
    """The neighbours of item j, and their similarities. `sums` and `met` are zeros, before and after."""
    n = 0
    for s in range(item_ptr[j], item_ptr[j + 1]):
        user = item_users[s]
        for t in range(user_ptr[user], user_ptr[user + 1]):
            i = user_items[t]
            if not met[i]:
                met[i] = True
                items[n] = i
                n += 1
            sums[i] += squares[user]
    candidates = np.sort(items[:n])
    similar = np.zeros(n, np.float32)
    for at in range(n):
        i = candidates[at]
        c = b[i] * b[j] * sums[i]
        if i != j and c > 0:
            rest = of_history[i] * of_target[j] if cosine else own * c + of_history[i] + of_target[j]
            similar[at] = c / (rest + shrink)
        met[i], sums[i] = False, 0.0
    kept = largest(similar, k)
    return candidates[kept], similar[kept]
