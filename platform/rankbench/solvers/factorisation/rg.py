r"""RG² and RG×, squared surrogates of the softmax loss, by alternating least squares (Pu et al., ICML 2024; Pu et al., arXiv
2025). In all of them $y = p_u \cdot q_i$, and users without interactions get zero vectors. $I_u$ are the items of user u, R all
interactions, M and N the numbers of users and items.

RG² (ICML, Eq. 13, 14, 33 and 34):

$$\sum_R \Bigl(-y_{ui} + \frac{1}{2N} \lVert y_u + 1 \rVert^2\Bigr)
  = \sum_{u,i} \frac{|I_u|}{2N} \Bigl(y_{ui} + 1 - r_{ui} \frac{N}{|I_u|}\Bigr)^2 + \text{const}$$ (rg2)

with the ridge of the paper's updates, λ times the sum of a row's weights: $\lambda |I_u|/2$ per user, $\lambda |R|/2N$ per
item. A user's weight and ridge are proportional, so all users share one K x K system, and so do all items: an iteration takes
$O(|R|K + (M + N)K^2)$. `regulariser: product` replaces the ridge by $\frac{\lambda}{2N} \sum_{u,i} y_{ui}^2$ (appendix A.6 of
the journal version), and `regulariser: unweighted` by that of Eq. 22, λ for every row, as in `wrmf`:
$\lambda (\lVert P \rVert_F^2 + \lVert Q \rVert_F^2)$. It is added to the loss above, whose weights are those of Algorithm 1; in
Eq. 23 they are divided by |R|, and so is then λ. Items without interactions share one vector, which moves their scores towards
−1.

RG× (journal, Eq. 14, 15, 17, 38 and 39) as defined:

$$\sum_R \Bigl(-y_{ui} + \frac{1}{2N} \lVert y_u + 1 \rVert^2 - \frac{1}{2N^2} \bigl(1^\top y_u\bigr)^2\Bigr)$$ (rgx)

After an item step $\sum_i q_i = 0$, because the targets of every user sum to zero: the items' sum h solves $(A - N B) h =
\sum_i b_i = 0$, where $A - N B$ is the ridge. From the first item step on the new term is therefore 0 for every user, and so
are its gradient and its part in the user step: the iterates are those of RG². Thus `rgx` is RG² under another name, and a sweep
runs only one of the two.

The published update replaces $(\sum_i y_{ui})^2$ by $\lVert y_u \rVert^2$, which removes a fraction β of the quadratic term of
RG²; the printed fraction 1/N is replaced, "for operability", by a hyperparameter:

$$\sum_R \Bigl(-y_{ui} + \frac{1 - \beta}{2N} \lVert y_u \rVert^2 + \frac{1}{N} 1^\top y_u\Bigr)$$ (rgx-paper)

RG² from sampled softmax with n negatives (journal, Eq. 18 and 19), in which interactions weigh more than other pairs:

$$
\sum_{u,i} w_{ui} \Bigl(y_{ui} + 1 - r_{ui} \frac{N}{|I_u|}\Bigr)^2, \qquad
w_{ui} = \frac{|I_u|}{2N} \text{ on interactions}, \quad \frac{|I_u|}{2N} \cdot \frac{n + 1}{N} \text{ elsewhere}
$$ (rg2-sampled)

`weights: printed` is this one, Eq. 19, with λ times the sum of a row's weights as ridge. Those weights do not follow from the
loss that the paper samples. `weights: expected` is the expectation of that loss over n uniform negatives, with the ridge of
RG²:

$$\sum_R \Bigl(-y_{ui} + \frac{(y_{ui} + 1)^2}{2(n + 1)}\Bigr) + \sum_{u,i} \frac{|I_u| n}{2N(n + 1)} (y_{ui} + 1)^2$$

RG² and RG× as their authors run them, with a weight α on interactions, and β in both Gram terms:

$$(1 - \beta) \Bigl(\sum_{u,i} \frac{|I_u|}{2N} y_{ui}^2 + \alpha \sum_R y_{ui}^2\Bigr) + \sum_{u,i} \frac{|I_u|}{N} y_{ui}
  - (1 + 2\alpha) \sum_R y_{ui} + \text{ridge}$$ (rg-authors)

with the ridges $\lambda (|I_u|/2 + \alpha N)$ per user and $\lambda (|R|/2N + \alpha M)$ per item. No formula of them has α: it
moves the scores of interactions towards 1. Their program for RG× does not multiply α by 1 − β. At α = β = 0 this is RG², and at
α = 0 it is `rgx-paper`. Two switches reproduce their published program. `item_rhs_sign: 1` gives the item step
$+\sum_u \frac{|I_u|}{2N} p_u$ instead of −, which contradicts its targets of −1: the two half steps then minimise different
losses, and the loss may rise. `reg: authors` adds λ to the ridge of users only, as their program for RG² does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankbench.core.params import Choice, Fixed, Range, param
from rankbench.fitting.method import METHODS
from rankbench.solvers.als.fit import ALSParams, Counts, als, identity_of

FAMILIES = ("als", "rg")
JOURNAL = "Pu et al., arXiv 2025"


@dataclass(frozen=True)
class RGx(ALSParams):
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)


@dataclass(frozen=True)
class RG2(RGx):
    regulariser: Literal["weighted", "product", "unweighted"] = param(
        "weighted",
        "regulariser of the vectors by their weights (weighted) or with one λ for all (unweighted), or of the scores (product)",
        Fixed("weighted"),
    )


@dataclass(frozen=True)
class RGxPaper(RGx):
    beta: float = param(0.01, "fraction β of the quadratic term that is removed", Range(0, 0.5), ge=0, lt=1)


@dataclass(frozen=True)
class RG2Sampled(ALSParams):
    n_negatives: int = param(
        20, "number n of negatives in the expanded loss (none are drawn); at most all other items", Range(10, 1000), gt=0
    )
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)
    weights: Literal["printed", "expected"] = param(
        "printed", "weights as printed in Eq. 19, or the expectation of Eq. 18", Choice("printed", "expected")
    )


@dataclass(frozen=True)
class RGAuthors(RGx):
    alpha: float = param(0.01, "weight α of the squared distance of interactions from 1", Range(0, 1, log=True), ge=0)
    beta: float = param(0.0, "fraction β of the quadratic terms that is removed; 0 for RG²", Range(0, 0.5), ge=0, lt=1)
    item_rhs_sign: Literal[-1, 1] = param(-1, "sign in the item step: -1 follows the loss, 1 the authors' program", Fixed(-1))
    reg: Literal["weighted", "authors"] = param(
        "weighted", "ridge of users: by weight, or with λ added as in the authors' program (authors)", Fixed("weighted")
    )


def _weighted(n: Counts, p: RGx) -> dict[str, Any]:
    """RG² with its ridge, scaled per interaction, as the loss is printed."""
    weight = n.users / (2 * n.n_items)
    loss = {"all_weight": weight, "all_target": -weight, "weight": 0, "target": 0.5, "constant": n.total / 2}
    return loss | _ridges(n, p.lam)


def _ridges(n: Counts, lam: float) -> dict[str, Any]:
    return {"reg_users": lam * n.users / 2, "reg_items": lam * n.total / (2 * n.n_items)}


def unweighted(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """As `als`, for a loss without weights on interactions: no parameter of a solver of single rows changes a vector."""
    solver = ("solver", "cg_steps", "subspace_dim")
    reason = "one decomposition solves all rows of a side exactly, whatever the solver"
    own = {"identity": identity_of(name, solver), "redundant": solver, "reason": reason, "families": FAMILIES, "pace": 0.6}
    return als(name, params, **own | about)


@unweighted("rg2", RG2, title="RG²: squared surrogate of softmax, by ALS", source="Pu et al., ICML 2024")
def rg2(n: Counts, p: RG2) -> dict[str, Any]:
    loss = _weighted(n, p)
    if p.regulariser == "product":
        loss |= {"all_weight": loss["all_weight"] + p.lam / (2 * n.n_items), "reg_users": 0, "reg_items": 0}
    elif p.regulariser == "unweighted":
        loss |= {"reg_users": p.lam, "reg_items": p.lam}
    return loss


@unweighted(
    "rgx",
    RGx,
    identity=lambda p: METHODS.get("rg2").identity_of(RG2(**dataclasses.asdict(p))),
    title="RG×, exactly as defined: equal to RG²",
    source=f"{JOURNAL}, Eq. 17",
)
def rgx(n: Counts, p: RGx) -> dict[str, Any]:
    return _weighted(n, p)


@unweighted("rgx-paper", RGxPaper, title="RG× as published: RG² with a smaller quadratic term", source=f"{JOURNAL}, Eq. 38, 39")
def rgx_paper(n: Counts, p: RGxPaper) -> dict[str, Any]:
    loss = _weighted(n, p)
    return loss | {"all_weight": (1 - p.beta) * loss["all_weight"]}


@als("rg2-sampled", RG2Sampled, families=FAMILIES, title="RG² derived from sampled softmax", source=JOURNAL)
def rg2_sampled(n: Counts, p: RG2Sampled) -> dict[str, Any]:
    N = n.n_items
    negatives = min(p.n_negatives, N - 1)
    half = n.users / (2 * N)
    if p.weights == "expected":
        pairs, positive = half * negatives / (negatives + 1), 1 / (2 * (negatives + 1))
        loss = {"all_weight": pairs, "all_target": -pairs, "weight": np.where(n.users > 0, positive, 0)}
        constant = float(N * pairs.sum() + positive * n.total)
        return loss | {"target": 1 / 2 - positive, "constant": constant} | _ridges(n, p.lam)
    other = half * (negatives + 1) / N
    return {
        "all_weight": other,
        "all_target": -other,
        "weight": half - other,
        "target": 1 / 2 - half + other,
        "reg_users": p.lam * (half * n.users + other * (N - n.users)),
        "reg_items": p.lam * (other.sum() + n.over_users(half - other)),
        "constant": float(((N - n.users) * other).sum() + (half * (N / n.users.clip(1) - 1) ** 2 * n.users).sum()),
    }


@als(
    "rg-authors",
    RGAuthors,
    families=FAMILIES,
    title="RG² and RG× as their authors run them, with α and β",
    source=f"Pu et al., ICML 2024; {JOURNAL}; their program",
)
def rg_authors(n: Counts, p: RGAuthors) -> dict[str, Any]:
    weight = n.users / (2 * n.n_items)
    return {
        "all_weight": (1 - p.beta) * weight,
        "all_target": -weight,
        "weight": (1 - p.beta) * p.alpha,
        "target": 0.5 + p.alpha,
        "reg_users": p.lam * (n.users / 2 + p.alpha * n.n_items) + (p.lam if p.reg == "authors" else 0),
        "reg_items": p.lam * (n.total / (2 * n.n_items) + p.alpha * n.n_fitted),
        "constant": n.total / 2 + p.alpha * n.total,
        "item_all_target": weight if p.item_rhs_sign == 1 else None,
    }
