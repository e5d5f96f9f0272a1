"""RG², the softmax loss's squared surrogate (Pu et al., ICML 2024, Eq. 13, 14, 33 and 34), by alternating least squares.

    Σ_R (−y_ui + ‖y_u + 1‖² / 2N) = Σ_ui |I_u|/2N (y_ui + 1 − r_ui N/|I_u|)² + constants,    y_ui = p_u · q_i

with the ridge of the paper's updates, λ times a row's sum of weights: λ |I_u|/2 a user, λ |R|/2N an item. Weight and ridge of a
user are in proportion, so all users share one K x K system, and all items: no row solves, O(|R|K + (M + N)K²) an iteration.
`regulariser: product` puts λ/2N Σ_ui y_ui² in its place (appendix A.6 of the journal version). Users without interactions get
vectors of zeros. Items without any share one vector, which scores them towards −1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss, per_user


@dataclass(frozen=True)
class RG2(ALSParams):
    lam: float = param(0.01, "λ of the ridge, ≥ 0", "0 to 1")
    regulariser: Literal["weighted", "product"] = param("weighted", "of vectors, by weight; or of scores", "weighted")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lam >= 0, f"lam must be >= 0, got {self.lam}")


@als("rg2", RG2, title="RG²: softmax's squared surrogate, one system a side", source="Pu et al., ICML 2024", pace=0.6)
def rg2(n: Counts, p: RG2) -> QuadraticLoss:
    weight = n.users / (2 * n.n_items)
    product = p.regulariser == "product"
    return QuadraticLoss(
        # Per interaction, as the loss is printed.
        all_weight=weight + (p.lam / (2 * n.n_items) if product else 0),
        all_target=-weight,
        weight=per_user(n.n_users, 0),
        target=per_user(n.n_users, 0.5),
        reg_users=per_user(n.n_users, 0) if product else p.lam * n.users / 2,
        reg_items=np.full(n.n_items, 0.0 if product else p.lam * n.total / (2 * n.n_items)),
        constant=n.total / 2,
    )
