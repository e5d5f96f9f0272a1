r"""MSE, the squared error with a weight on negatives (Jin and Li, arXiv 2023, Eq. 17).

$$\ell(u, i) = (1 - y_{ui})^2 + \frac{\lambda}{n} \sum_j y_{uj}^2$$

paper y → `s.pos` (B,), `s.neg` (B, n), dot products; λ → `lam`.
Summed over a user's rows, this is the plain squared error if λ is the ratio of the numbers of negatives and positives. If λ is
that ratio over 1 + α, it is the loss of WRMF with weight 1 + α on positives, divided by 1 + α.
Differs from the paper: the mean over all items without an interaction is replaced by the mean over n sampled items.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rankbench.core.params import Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class MSE(Params):
    lam: float = param(1.0, "weight λ of the mean over negatives", Range(0.01, 100, log=True, published=False), ge=0)


@loss(
    "mse",
    MSE,
    similarity="dot",
    over_catalogue=True,
    sampler="uniform-all",
    families=("pointwise",),
    title="MSE: squared error with weighted negatives",
    source="Jin and Li, arXiv 2023, Eq. 17",
)
def mse(s: Scores, p: MSE) -> Tensor:
    return (1 - s.pos).square() + p.lam * s.others.moments()[1]
