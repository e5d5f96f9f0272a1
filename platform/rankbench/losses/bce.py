r"""BCE, binary cross-entropy (He et al., WWW 2017): positives are labelled 1, sampled negatives 0.

$$\ell(u, i) = \operatorname{softplus}(-o_{ui}) + \frac{1}{n} \sum_{j} \operatorname{softplus}(o_{uj})$$

paper o → `s.pos` (B,), `s.neg` (B, n), logits
Differs from the paper: the sum over all pairs without an interaction runs over n items that are drawn from all, the user's own
included (`sampler=uniform-other` leaves them out), and is divided by n unless `neg_reduction` is sum. Scores are dot products,
because a cosine cannot saturate the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Choice, Params, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class BCE(Params):
    neg_reduction: Literal["mean", "sum"] = param("mean", "reduction over the negatives of a row", Choice("mean", "sum"))


@loss(
    "bce",
    BCE,
    similarity="dot",
    over_catalogue=True,
    sampler="uniform-all",
    families=("pointwise",),
    title="BCE: binary cross-entropy with sampled negatives",
    source="He et al., WWW 2017",
)
def bce(s: Scores, p: BCE) -> Tensor:
    misses = s.others.mean_softplus()
    return -logsigmoid(s.pos) + (misses if p.neg_reduction == "mean" else misses * s.others.n)
