"""EDLAE, denoising autoencoder with full emphasis on dropped entries (Steck, NeurIPS 2020, Eq. 10 with b = 0).

    C = (G + p/(1−p) diag(G) + λI)^-1,    W = (I − C diag(1 / C_jj)) / (1−p)

The factor 1/(1−p) undoes the dropout at prediction time and changes no ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.fitting.method import Shift, closed_form


@dataclass(frozen=True)
class EDLAE:
    p: float = param(0.5, "dropout probability, 0 ≤ p < 1", "0.1 to 0.9")
    lam: float = param(10.0, "ridge λ added to the Gram matrix, ≥ 0", "0 to 500")

    def __post_init__(self) -> None:
        require(0 <= self.p < 1, f"p must lie in [0, 1), got {self.p}")
        require(self.lam >= 0, f"lam must be >= 0, got {self.lam}")


@closed_form(
    "edlae",
    EDLAE,
    shift=lambda p: Shift(p.p / (1 - p.p), p.lam),
    identity=lambda p: ("edlae", p.p, p.lam),
    title="EDLAE: dropout with emphasis on dropped entries (b = 0)",
    source="Steck, NeurIPS 2020",
)
def edlae(diag_C: np.ndarray, counts: np.ndarray, p: EDLAE) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    return -1.0 / (diag_C * (1 - p.p)), np.full_like(diag_C, 1 / (1 - p.p))
