"""MSE, the squared error with a weight on negatives (Jin and Li, (Debiased) contrastive learning loss, Eq. 17).

    ℓ(u, i) = (1 − y_ui)² + λ/n Σ_j y_uj²

paper y → s.pos (B,), s.neg (B, n), dot products;  λ → lam
A user's rows, summed, are the plain squared error where λ is the number of negatives over the number of positives, and
WRMF's with weight 1 + α on positives, divided by it, where λ is that over 1 + α.
Differs from the paper: the mean over all items that did not meet runs over n sampled ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class MSE:
    lam: float = param(1.0, "weight λ of the mean over negatives, ≥ 0", "0.01 to 100, log scale; not published")

    def __post_init__(self) -> None:
        require(self.lam >= 0, f"lam must be >= 0, got {self.lam}")


@loss(
    "mse",
    MSE,
    similarity="dot",
    sampler="uniform-all",
    title="MSE: squared error with weighted negatives",
    source="Jin and Li, (Debiased) contrastive learning loss, Eq. 17",
)
def mse(s: Scores, p: MSE) -> Tensor:
    return (1 - s.pos).square() + p.lam * s.neg.square().mean(dim=1)
