r"""CCL, cosine contrastive loss (Mao et al., CIKM 2021, SimpleX): negatives below a margin are ignored.

$$\ell(u, i) = 1 - s_{ui} + \frac{w}{n} \sum_j [s_{uj} - \varepsilon]_+$$

paper s → `s.pos` (B,), `s.neg` (B, n), cosines; w → `w`; ε → `margin`.
With `clipped`, the first term is $[1 - s_{ui}]_+$. The SimpleX program has both: they differ where an encoder's dropout
(`simplex`) makes a score larger than 1. It can also omit w and sum over negatives, which is w = n.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class CCL(Params):
    w: float = param(0.3, "weight of the mean over negatives", Range(0.1, 1000, log=True), ge=0)
    margin: float = param(0.8, "cosine ε above which a negative contributes", Range(0, 0.9), ge=0, lt=1)
    clipped: bool = param(False, "whether a positive whose score is above 1 contributes nothing", Choice(False, True))


@loss(
    "ccl",
    CCL,
    similarity="cosine",
    only_because="its margin is a cosine",
    over_catalogue=True,
    sampler="uniform-all",
    families=("pointwise",),
    title="CCL: cosine contrastive loss with a margin",
    source="Mao et al., CIKM 2021",
)
def ccl(s: Scores, p: CCL) -> Tensor:
    positive = torch.relu(1 - s.pos) if p.clipped else 1 - s.pos
    return positive + p.w * s.others.mean_relu(p.margin)
