"""RG² from sampled softmax with n negatives (journal version, Eq. 18 and 19): interactions weigh more than other pairs.

`weights: printed` is Eq. 19: |I_u| on interactions and |I_u| (n + 1)/N elsewhere, with the targets of RG² and, as ridge, λ
times the sum of a row's weights. Those weights do not follow from the loss that the paper samples.

`weights: expected` is the expectation of that loss over n uniform negatives,

    Σ_R (−y + (y + 1)² / 2(n + 1)) + Σ_ui |I_u| n / (2N(n + 1)) (y + 1)²,    y = p_u · q_i

with the ridge of RG². Users without interactions get zero vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rankbench.core.errors import require
from rankbench.core.params import Choice, Range, param
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss, per_user


@dataclass(frozen=True)
class RG2Sampled(ALSParams):
    n_negatives: int = param(
        20, "number n of negatives in the expanded loss (none are drawn), below n_items", Range(10, 1000), gt=0
    )
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)
    weights: Literal["printed", "expected"] = param(
        "printed", "weights as printed in Eq. 19, or the expectation of Eq. 18", Choice("printed", "expected")
    )


@als(
    "rg2-sampled",
    RG2Sampled,
    families=("als", "rg"),
    title="RG² derived from sampled softmax",
    source="Pu et al., NDCG-consistent softmax approximation",
)
def rg2_sampled(n: Counts, p: RG2Sampled) -> QuadraticLoss:
    N, negatives = n.n_items, p.n_negatives
    require(negatives < N, f"n_negatives must be < {N:,}, the number of items, got {negatives:,}")
    half, ones = n.users / (2 * N), per_user(n.n_users, 1)
    if p.weights == "expected":
        pairs, positives = half * negatives / (negatives + 1), ones / (2 * (negatives + 1))
        return QuadraticLoss(
            all_weight=pairs,
            all_target=-pairs,
            weight=np.where(n.users > 0, positives, 0),
            target=ones / 2 - positives,
            reg_users=p.lam * n.users / 2,
            reg_items=np.full(N, p.lam * n.total / (2 * N)),
            constant=float(N * pairs.sum() + positives[0] * n.total),
        )
    other = half * (negatives + 1) / N
    return QuadraticLoss(
        all_weight=other,
        all_target=-other,
        weight=half - other,
        target=ones / 2 - half + other,
        reg_users=p.lam * (half * n.users + other * (N - n.users)),
        reg_items=p.lam * (other.sum() + n.over_users(half - other)),
        constant=float(((N - n.users) * other).sum() + (half * (N / n.users.clip(1) - 1) ** 2 * n.users).sum()),
    )
