"""iALS with a ridge that grows with frequency (Rendle et al., RecSys 2022, Eq. 1 to 3).

    Σ_R (1 − p_u · q_i)² + α₀ Σ_ui (p_u · q_i)² + λ (Σ_u (|I_u| + α₀N)^ν ‖p_u‖² + Σ_i (|U_i| + α₀M)^ν ‖q_i‖²)

Users and items without interactions get zero vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankbench.core.params import Fixed, Range, param
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss, per_user


@dataclass(frozen=True)
class IALS(ALSParams):
    alpha0: float = param(0.1, "weight α₀ of every pair", Range(0.001, 1), gt=0)
    lam: float = param(0.003, "ridge λ", Range(0.0003, 0.3), ge=0)
    nu: float = param(1.0, "exponent ν of the frequency in the ridge; 0: the same ridge for all", Fixed(1), ge=0, le=2)


@als("ials", IALS, families=("als",), title="iALS: implicit ALS with a ridge by frequency", source="Rendle et al., RecSys 2022")
def ials(n: Counts, p: IALS) -> QuadraticLoss:
    return QuadraticLoss(
        all_weight=per_user(n.n_users, p.alpha0),
        all_target=per_user(n.n_users, 0),
        weight=per_user(n.n_users, 1),
        target=per_user(n.n_users, 1),
        reg_users=p.lam * (n.users + p.alpha0 * n.n_items) ** p.nu,
        reg_items=p.lam * (n.items + p.alpha0 * n.n_fitted) ** p.nu,
        constant=n.total,
    )
