r"""EDLAE and DLAE, denoising linear autoencoders (Steck, NeurIPS 2020). G = XᵀX, and p is the probability of dropout.

EDLAE has full emphasis on dropped entries (Eq. 10 with b = 0):

$$C = \Bigl(G + \frac{p}{1 - p} \operatorname{diag}(G) + \lambda I\Bigr)^{-1}, \qquad
W = \frac{1}{1 - p} \bigl(I - C \operatorname{diag}(1 / C_{jj})\bigr)$$ (edlae)

The factor 1/(1−p) undoes the dropout at prediction time and changes no ranking.

DLAE has dropout, no emphasis, and a free diagonal:

$$\Lambda = \frac{p}{1 - p} \operatorname{diag}(G) + \lambda I, \qquad W = (G + \Lambda)^{-1} G = I - C \Lambda, \qquad
C = (G + \Lambda)^{-1}$$ (dlae)

C equals that of EDLAE with the same (p, λ). Since G = (G + Λ) − Λ, the product with G is a column scaling. DEQL(L2) at b = a
and λ' = λ gives W/(1−p), which has the same ranking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankbench.core.errors import require
from rankbench.core.params import Params, Range, param
from rankbench.fitting.method import Shift, closed_form


@dataclass(frozen=True)
class EDLAE(Params):
    p: float = param(0.5, "dropout probability", Range(0.1, 0.9), ge=0, lt=1)
    lam: float = param(10.0, "ridge λ added to the Gram matrix", Range(0, 500, log=True), ge=0)


@dataclass(frozen=True)
class DLAE(EDLAE):
    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.p > 0 or self.lam > 0, "p = 0 and lam = 0 give the identity matrix: raise one of them")


def shift(p: EDLAE) -> Shift:
    return Shift(p.p / (1 - p.p), p.lam)


@closed_form(
    "edlae",
    EDLAE,
    shift=shift,
    identity=lambda p: ("edlae", p.p, p.lam),
    families=("linear",),
    title="EDLAE: dropout with emphasis on dropped entries (b = 0)",
    source="Steck, NeurIPS 2020",
)
def edlae(diag_C: np.ndarray, counts: np.ndarray, p: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    return -1.0 / (diag_C * (1 - p.p)), np.full_like(diag_C, 1 / (1 - p.p))


@closed_form(
    "dlae",
    DLAE,
    shift=shift,
    identity=lambda p: ("deql", p.p, p.lam, 1.0),
    families=("linear",),
    title="DLAE: dropout without emphasis, a free diagonal",
    source="Steck, NeurIPS 2020",
)
def dlae(diag_C: np.ndarray, counts: np.ndarray, p: DLAE) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    return -(counts * p.p / (1 - p.p) + p.lam), np.ones_like(diag_C)
