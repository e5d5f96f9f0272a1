"""RG², a squared surrogate of the softmax loss (Pu et al., ICML 2024, Eq. 13, 14, 33 and 34), by alternating least squares.

    Σ_R (−y_ui + ‖y_u + 1‖² / 2N) = Σ_ui |I_u|/2N (y_ui + 1 − r_ui N/|I_u|)² + constants,    y_ui = p_u · q_i

with the ridge of the paper's updates, λ times the sum of a row's weights: λ |I_u|/2 per user, λ |R|/2N per item. A user's
weight and ridge are proportional, so all users share one K x K system, and so do all items: an iteration takes O(|R|K + (M +
N)K²). `regulariser: product` replaces the ridge by λ/2N Σ_ui y_ui² (appendix A.6 of the journal version). Users without
interactions get zero vectors. Items without interactions share one vector, which moves their scores towards −1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankbench.core.params import Fixed, Range, param
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss, per_user


@dataclass(frozen=True)
class RG2(ALSParams):
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)
    regulariser: Literal["weighted", "product"] = param(
        "weighted", "regulariser of the vectors by their weights (weighted), or of the scores (product)", Fixed("weighted")
    )


@als(
    "rg2",
    RG2,
    families=("als", "rg"),
    title="RG²: squared surrogate of softmax, by ALS",
    source="Pu et al., ICML 2024",
    pace=0.6,
)
def rg2(n: Counts, p: RG2) -> QuadraticLoss:
    weight = n.users / (2 * n.n_items)
    product = p.regulariser == "product"
    return QuadraticLoss(
        # Scaled per interaction, as the loss is printed.
        all_weight=weight + (p.lam / (2 * n.n_items) if product else 0),
        all_target=-weight,
        weight=per_user(n.n_users, 0),
        target=per_user(n.n_users, 0.5),
        reg_users=per_user(n.n_users, 0) if product else p.lam * n.users / 2,
        reg_items=np.full(n.n_items, 0.0 if product else p.lam * n.total / (2 * n.n_items)),
        constant=n.total / 2,
    )
