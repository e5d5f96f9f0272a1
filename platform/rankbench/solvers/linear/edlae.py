"""EDLAE, denoising autoencoder with full emphasis on dropped entries (Steck, NeurIPS 2020, Eq. 10 with b = 0).

    C = (G + p/(1−p) diag(G) + λI)^-1,    W = (I − C diag(1 / C_jj)) / (1−p)

The factor 1/(1−p) undoes the dropout at prediction time and changes no ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.params import Params, Range, param
from rankbench.fitting.method import Shift, closed_form


@dataclass(frozen=True)
class EDLAE(Params):
    p: float = param(0.5, "dropout probability", Range(0.1, 0.9), ge=0, lt=1)
    lam: float = param(10.0, "ridge λ added to the Gram matrix", Range(0, 500, log=True), ge=0)


@closed_form(
    "edlae",
    EDLAE,
    shift=lambda p: Shift(p.p / (1 - p.p), p.lam),
    identity=lambda p: ("edlae", p.p, p.lam),
    families=("linear",),
    title="EDLAE: dropout with emphasis on dropped entries (b = 0)",
    source="Steck, NeurIPS 2020",
)
def edlae(diag_C: np.ndarray, counts: np.ndarray, p: EDLAE) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    return -1.0 / (diag_C * (1 - p.p)), np.full_like(diag_C, 1 / (1 - p.p))
