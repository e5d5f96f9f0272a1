r"""CML, collaborative metric learning (Hsieh et al., WWW 2017, Eq. 2 to 4).

$$\ell(u, i) = \log(1 + \operatorname{rank}_{ui}) \cdot \bigl[m + d(u, i)^2 - \min_k d(u, j_k)^2\bigr]_+$$

paper $d(u, i)^2$ → −`s.pos` (B,), $d(u, j)^2$ → −`s.neg` (B, n), vectors in the unit ball; m → `margin`.
The rank is n_items times the fraction of sampled negatives within the margin, and is treated as a constant by the gradient.
Differs from the paper: there is no covariance penalty and no feature loss, because both need the vectors themselves. With an
encoder that propagates vectors, those that are learned are in the ball, and those that are scored need not be.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class CML(Params):
    margin: float = param(1.0, "margin m between squared distances in the unit ball", Range(0.1, 2), gt=0)
    rank_weight: bool = param(True, "whether a row is weighted by log(1 + its estimated rank)", Choice(True, False))


@loss(
    "cml",
    CML,
    similarity="distance",
    only_because="it learns a metric",
    unit_ball=True,
    families=("pairwise", "distance"),
    title="CML: hinge between squared distances",
    source="Hsieh et al., WWW 2017",
    pace=2.0,
)
def cml(s: Scores, p: CML) -> Tensor:
    hinges = torch.relu(p.margin - s.pos[:, None] + s.neg)
    hardest = hinges.amax(dim=1)
    if not p.rank_weight:
        return hardest
    rank = s.n_items * (hinges.detach() > 0).to(hinges.dtype).mean(dim=1)
    return torch.log1p(rank) * hardest
