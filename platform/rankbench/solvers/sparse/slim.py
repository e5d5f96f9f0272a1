r"""SLIM, sparse linear methods (Ning and Karypis, ICDM 2011, Eq. 3), with the parameters that Dacrema et al. (RecSys 2019)
search, which are those of scikit-learn's elastic net.

$$\min_W \; \frac{1}{2 n} \lVert X - XW \rVert^2 + \alpha \rho \lVert W \rVert_1 + \frac{\alpha (1 - \rho)}{2} \lVert W \rVert^2
\;\text{with}\; W \ge 0, \; \operatorname{diag}(W) = 0, \qquad n \text{ users with interactions}$$

Each column is solved by coordinate descent on the Gram matrix G = XᵀX. All of G and W is at least 0, so the slope that raises
$w_{ij}$ is never above $G_{ij} - n \alpha \rho$: where that is not positive, the weight is 0 and its row is left out.

Differs from the paper: of a column, at most k weights are kept, the largest, as in the other paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.params import Fixed, Params, Range, param
from rankbench.data.blocks import gram
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import SparseRecommender
from rankbench.solvers.sparse.columns import Column, by_columns, largest

FIRST = 32  # items that a column begins with


@dataclass(frozen=True)
class SLIM(Params):
    alpha: float = param(0.01, "weight α of both penalties", Range(1e-3, 1, log=True), gt=0)
    l1_ratio: float = param(0.01, "share ρ of the penalty that makes weights zero", Range(1e-5, 1, log=True), ge=0, le=1)
    neighbours: int = param(200, "most weights k of a target item", Range(5, 1000, log=True), gt=0)
    iterations: int = param(100, "most sweeps over a set of weights", Fixed("not published"), gt=0)
    tolerance: float = param(
        1e-3, "largest change in the last sweep, as a share of the largest weight", Fixed("not published"), gt=0
    )


@direct(
    "slim",
    SLIM,
    families=("linear", "neighbours"),
    title="SLIM: sparse non-negative linear item-item model, elastic net",
    source="Ning and Karypis, ICDM 2011",
    holds_matrix=True,
    sparse=True,
)
def slim(X: sp.csr_array, p: SLIM, seed: int) -> SparseRecommender:
    counts = gram(X, np.float32)
    # The mean is over users with interactions: how many are held out must not change the penalty.
    G, own, scale = counts.take(), counts.counts, np.count_nonzero(np.diff(X.indptr)) * p.alpha

    def columns(block: range) -> list[Column]:
        penalties = scale * p.l1_ratio, scale * (1 - p.l1_ratio)
        return [_column(j, G, own, *penalties, p.iterations, p.tolerance, p.neighbours) for j in block]

    return by_columns(columns, X.shape[1])


@numba.njit(nogil=True, cache=True)
def _column(j, G, own, l1, l2, sweeps, tolerance, k):
    """The rows and the weights of column j. Slopes are G_ij − l1 − Σ_m G_im w_mj, by which w_ij grows.

    Few weights are above zero, so only those of a set of items are solved for. It grows by the items with the largest slopes
    until no other one has a slope that would give it a weight.
    """
    others = G[j] > l1
    others[j] = False
    candidates = np.flatnonzero(others).astype(np.int32)
    slopes, own, known = np.empty(len(candidates)), own[candidates], np.zeros(len(candidates), np.bool_)
    items, w, top = np.empty(0, np.int32), np.empty(0, np.float64), 0.0
    while True:
        for at, i in enumerate(candidates):
            slopes[at] = G[j, i] - l1
        for number, m in enumerate(items):
            if w[number] > 0.0:
                row, weight = G[m], w[number]
                for at, i in enumerate(candidates):
                    slopes[at] -= weight * row[i]
        new = np.flatnonzero(~known & (slopes > tolerance * top * (own + l2)))
        if not len(new):
            break
        likely = np.argsort(-slopes[new] / np.sqrt(own[new] + l2), kind="mergesort")
        new = new[likely[: max(FIRST, len(items))]]
        known[new] = True
        items, w = np.concatenate((items, candidates[new])), np.concatenate((w, np.zeros(len(new), np.float64)))
        top = _descend(j, G, items, w, l1, l2, sweeps, tolerance)
    order = np.argsort(items)
    weights = w[order].astype(np.float32)
    kept = largest(weights, k)
    return items[order][kept], weights[kept]


@numba.njit(nogil=True, cache=True)
def _descend(j, G, items, w, l1, l2, sweeps, tolerance):
    """Solve for the weights w of some items, in place, and return the largest."""
    n = len(items)
    part, slopes = np.empty((n, n)), np.empty(n)
    for a in range(n):
        slopes[a] = G[j, items[a]] - l1
        for b in range(n):
            part[a, b] = G[items[a], items[b]]
            slopes[a] -= part[a, b] * w[b]
    top = 0.0
    for _ in range(sweeps):
        change, top = 0.0, 0.0
        for a in range(n):
            row, old = part[a], w[a]
            new = max(0.0, (slopes[a] + row[a] * old) / (row[a] + l2))
            if new != old:
                w[a] = new
                for b in range(n):
                    slopes[b] -= (new - old) * row[b]
            change, top = max(change, abs(new - old)), max(top, new)
        if change <= tolerance * top:
            break
    return top
