"""EASE, embarrassingly shallow autoencoder (Steck, WWW 2019, Eq. 8).

min ‖X − XW‖² + λ‖W‖²  with diag(W) = 0    →    C = (G + λI)^-1,    W = I − C diag(1 / C_jj)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.params import Params, Range, param
from rankbench.fitting.method import Shift, closed_form


@dataclass(frozen=True)
class EASE(Params):
    lam: float = param(100.0, "ridge λ on the weights", Range(10, 1000, log=True), gt=0)


@closed_form(
    "ease",
    EASE,
    shift=lambda p: Shift(0.0, p.lam),
    identity=lambda p: ("edlae", 0.0, p.lam),
    families=("linear",),
    title="EASE: linear item-item model, ridge, zero diagonal",
    source="Steck, WWW 2019",
)
def ease(diag_C: np.ndarray, counts: np.ndarray, p: EASE) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    return -1.0 / diag_C, np.ones_like(diag_C)
