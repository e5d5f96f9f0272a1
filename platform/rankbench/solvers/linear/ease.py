r"""EASE, embarrassingly shallow autoencoder (Steck, WWW 2019, Eq. 8). G = XᵀX.

$$\begin{aligned} & \min_W \; \lVert X - XW \rVert^2 + \lambda \lVert W \rVert^2 \;\text{with}\; \operatorname{diag}(W) = 0 \\
& \quad\to\quad C = (G + \lambda I)^{-1}, \quad W = I - C \operatorname{diag}(1 / C_{jj}) \end{aligned}$$ (ease)

Debiased EASE is the debiased squared error in EASE (Jin and Li, arXiv 2023, Eq. 26 and 27, Theorem 2).

$$\begin{aligned} & \min_W \; \lVert X - XW \rVert^2 - \alpha \lVert XW \rVert^2 + \lambda \lVert W \rVert^2
  \;\text{with}\; \operatorname{diag}(W) = 0 \\
& \quad\to\quad C = \Bigl(G + \frac{\lambda}{1 - \alpha} I\Bigr)^{-1}, \quad
  W = \frac{1}{1 - \alpha} \bigl(I - C \operatorname{diag}(1 / C_{jj})\bigr) \end{aligned}$$ (debiased-ease)

It is a multiple of EASE with λ/(1−α): every ranking that α can give, EASE gives with another λ.

Differs from the paper: α is a parameter here. There it comes from one weight c > 1 for the positives of every user, and $c
\lVert X - XW \rVert^2 - (c - 1) \lVert XW \rVert^2$, divided by c, has α = (c−1)/c and not the printed c−1, with which there is
no minimum for c ≥ 2. With the corrected α, 1/(1−α) is c: if λ is divided by c as well, debiased EASE is c times EASE with the
same λ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.params import Fixed, Params, Range, param
from rankbench.fitting.method import Shift, closed_form


@dataclass(frozen=True)
class EASE(Params):
    lam: float = param(100.0, "ridge λ on the weights", Range(10, 1000, log=True), gt=0)


@dataclass(frozen=True)
class DebiasedEASE(EASE):
    alpha: float = param(0.5, "weight α of the debiasing term; only lam/(1−alpha) matters", Fixed("not published"), ge=0, lt=1)


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


def ridge(p: DebiasedEASE) -> float:
    """The λ of the EASE with the same ranking."""
    return p.lam / (1 - p.alpha)


@closed_form(
    "debiased-ease",
    DebiasedEASE,
    shift=lambda p: Shift(0.0, ridge(p)),
    identity=lambda p: ("edlae", 0.0, ridge(p)),
    families=("linear", "debiased"),
    title="Debiased EASE: EASE under the debiased squared error",
    source="Jin and Li, arXiv 2023, Eq. 27",
)
def debiased_ease(diag_C: np.ndarray, counts: np.ndarray, p: DebiasedEASE) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha)."""
    scale = 1 / (1 - p.alpha)
    return -scale / diag_C, np.full_like(diag_C, scale)
