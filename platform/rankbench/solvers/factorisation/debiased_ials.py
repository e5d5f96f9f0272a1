"""Debiased iALS: iALS whose negatives exclude the interactions (debiased contrastive losses, §3.2).

    Σ_R (c_u (1 − y)² − α₀ c_u y²) + α₀ Σ_ui y² + iALS's ridge,    c_u = N τ_u / |I_u|,    y = p_u · q_i

τ_u is the fraction of items that user u would like: (1 + a) |I_u| / N + extra / N, so a counts unseen positives in proportion
to the known ones, and extra is a constant number of them. With extra = 0, c is the same for all users, and this is iALS at α₀'
= α₀ / (c (1 − α₀)) with the ridge divided by c and scores divided by 1 − α₀ (theorem 1, corrected): another point of the same
family. Users and items without interactions get zero vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankbench.core.params import Range, param
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.quadratic_loss import QuadraticLoss
from rankbench.solvers.factorisation.ials import IALS, ials


@dataclass(frozen=True)
class DebiasedIALS(IALS):
    alpha0: float = param(0.1, "weight α₀ of every pair", Range(0.001, 1), gt=0, lt=1)  # from 1 on the loss has no minimum
    a: float = param(0.0, "unseen positives per known positive", Range(0, 5), ge=0)
    extra: float = param(0.0, "unseen positives per user", Range(0, 100), ge=0)


@als(
    "debiased-ials",
    DebiasedIALS,
    families=("als", "debiased"),
    title="Debiased iALS: iALS without interactions among the negatives",
    source="debiased contrastive losses, §3.2",
)
def debiased_ials(n: Counts, p: DebiasedIALS) -> QuadraticLoss:
    c = 1 + p.a + p.extra / n.users.clip(1)
    return replace(ials(n, p), weight=c * (1 - p.alpha0), target=c, constant=float(c @ n.users))
