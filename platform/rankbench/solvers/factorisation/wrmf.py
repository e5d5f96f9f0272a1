r"""WRMF, weighted regularised matrix factorisation (Hu, Koren and Volinsky, ICDM 2008, Eq. 3).

$$\sum_{u,i} c_{ui} (r_{ui} - p_u \cdot q_i)^2 + \lambda \Bigl(\sum_u \lVert p_u \rVert^2 + \sum_i \lVert q_i \rVert^2\Bigr),
\qquad c_{ui} = 1 + \alpha r_{ui}$$

Users and items without interactions get zero vectors. The library `implicit` calls 1 + α its alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankbench.core.params import Range, param
from rankbench.solvers.als.fit import ALSParams, Counts, als


@dataclass(frozen=True)
class WRMF(ALSParams):
    lam: float = param(10.0, "ridge λ on every vector", Range(0, 1000, log=True), ge=0)
    alpha: float = param(4.0, "weight α of an interaction, in addition to the weight 1 of every pair", Range(0.5, 40), ge=0)


@als("wrmf", WRMF, families=("als",), title="WRMF: weighted squared error with one ridge", source="Hu et al., ICDM 2008")
def wrmf(n: Counts, p: WRMF) -> dict[str, Any]:
    return {
        "all_weight": 1, "all_target": 0, "weight": p.alpha, "target": 1 + p.alpha,
        "reg_users": p.lam, "reg_items": p.lam, "constant": (1 + p.alpha) * n.total,
    }  # fmt: skip
