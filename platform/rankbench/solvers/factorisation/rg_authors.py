"""RG² and RG× as their authors run them: a weight α on interactions beside the papers' losses, and β in both Gram terms.

    (1 − β) (Σ_ui |I_u|/2N y² + α Σ_R y²) + Σ_ui |I_u|/N y − (1 + 2α) Σ_R y + ridge,    y = p_u · q_i

with the ridges λ (|I_u|/2 + αN) of a user and λ (|R|/2N + αM) of an item. α is neither paper's: it pulls interactions to 1.
At α = β = 0 this is RG², at α = 0 `rgx-paper`.

Two switches reproduce their published program. `item_rhs_sign: 1` gives the items' step + Σ_u |I_u|/2N p_u in the place of −,
against its own targets of −1: the two half steps then minimise different things, and the loss may rise. `reg: authors` adds
λ to the ridge of users alone, as their program for RG² does.
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
class RGAuthors(ALSParams):
    lam: float = param(0.01, "λ of the ridge, ≥ 0", "0 to 1")
    alpha: float = param(0.01, "α, a square of weight α around 1 on interactions, ≥ 0", "0 to 1")
    beta: float = param(0.0, "β, the share of the quadratic terms that is taken away, 0 ≤ β < 1; RG² has 0", "0 to 0.5")
    item_rhs_sign: Literal[-1, 1] = param(-1, "-1: of the loss; 1: of the authors' program, inconsistent", "-1")
    reg: Literal["weighted", "authors"] = param("weighted", "authors: λ more for users", "weighted")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lam >= 0, f"lam must be >= 0, got {self.lam}")
        require(self.alpha >= 0, f"alpha must be >= 0, got {self.alpha}")
        require(0 <= self.beta < 1, f"beta must lie in [0, 1), got {self.beta}: the loss has no minimum beyond")


@als(
    "rg-authors",
    RGAuthors,
    title="RG² and RG× as their authors run them: α and β",
    source="Pu et al., ICML 2024 and after; their program",
)
def rg_authors(n: Counts, p: RGAuthors) -> QuadraticLoss:
    weight = n.users / (2 * n.n_items)
    return QuadraticLoss(
        all_weight=(1 - p.beta) * weight,
        all_target=-weight,
        weight=per_user(n.n_users, (1 - p.beta) * p.alpha),
        target=per_user(n.n_users, 0.5 + p.alpha),
        reg_users=p.lam * (n.users / 2 + p.alpha * n.n_items) + (p.lam if p.reg == "authors" else 0),
        reg_items=np.full(n.n_items, p.lam * (n.total / (2 * n.n_items) + p.alpha * n.n_users)),
        constant=n.total / 2 + p.alpha * n.total,
        item_all_target=weight if p.item_rhs_sign == 1 else None,
    )
