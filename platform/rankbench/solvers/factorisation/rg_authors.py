"""RG² and RG× as their authors run them: with a weight α on interactions, and β in both Gram terms.

    (1 − β) (Σ_ui |I_u|/2N y² + α Σ_R y²) + Σ_ui |I_u|/N y − (1 + 2α) Σ_R y + ridge,    y = p_u · q_i

with the ridges λ (|I_u|/2 + αN) per user and λ (|R|/2N + αM) per item. α is in neither paper: it moves the scores of
interactions towards 1. At α = β = 0 this is RG², and at α = 0 it is `rgx-paper`.

Two switches reproduce their published program. `item_rhs_sign: 1` gives the item step + Σ_u |I_u|/2N p_u instead of −, which
contradicts its targets of −1: the two half steps then minimise different losses, and the loss may rise. `reg: authors` adds λ
to the ridge of users only, as their program for RG² does.
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
class RGAuthors(ALSParams):
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)
    alpha: float = param(0.01, "weight α of the squared distance of interactions from 1", Range(0, 1, log=True), ge=0)
    beta: float = param(0.0, "fraction β of the quadratic terms that is removed; 0 for RG²", Range(0, 0.5), ge=0, lt=1)
    item_rhs_sign: Literal[-1, 1] = param(-1, "sign in the item step: -1 follows the loss, 1 the authors' program", Fixed(-1))
    reg: Literal["weighted", "authors"] = param(
        "weighted", "ridge of users: by weight, or with λ added as in the authors' program (authors)", Fixed("weighted")
    )


@als(
    "rg-authors",
    RGAuthors,
    families=("als", "rg"),
    title="RG² and RG× as their authors run them, with α and β",
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
        reg_items=np.full(n.n_items, p.lam * (n.total / (2 * n.n_items) + p.alpha * n.n_fitted)),
        constant=n.total / 2 + p.alpha * n.total,
        item_all_target=weight if p.item_rhs_sign == 1 else None,
    )
