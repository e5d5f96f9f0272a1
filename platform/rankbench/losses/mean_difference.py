r"""The mean difference, a lower bound of MINE (Jin and Li, arXiv 2023, §2.3).

$$\ell(u, i) = \frac{1}{n} \sum_j (y_{uj} - y_{ui})$$

paper y → `s.pos` (B,), `s.neg` (B, n), cosines.
By Jensen's inequality the logarithm of a mean of exponentials is at least the mean, so MINE with temperature 1 is at least
log n + ℓ. The gradient by an item does not depend on its score: no negative is harder than another.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class MeanDifference:
    """No parameters."""


@loss(
    "mean-difference",
    MeanDifference,
    similarity="cosine",
    over_catalogue=True,
    sampler="uniform-all",
    families=("pointwise",),
    title="Mean difference: the Jensen bound of MINE",
    source="Jin and Li, arXiv 2023, §2.3",
)
def mean_difference(s: Scores, p: MeanDifference) -> Tensor:
    return s.others.moments()[0] - s.pos
