r"""SmoothI@K, a smooth Precision@K by soft indicators of the ranks (Thonet et al., AAAI 2022).

$$\begin{aligned}
S &= y - \min y, \qquad c^1 = 1, \qquad I^k = \operatorname{softmax}(S c^k / \tau), \qquad c^{k+1} = c^k (1 - I^k - \delta) \\
\ell &= 1 - \frac{1}{K} \sum_{k=1}^{K} \sum_l \operatorname{rel}_l I^k_l \end{aligned}$$

paper y → [`s.pos`, `s.neg`] (B, 1 + n), of which only the positive is relevant; α = 1/τ → `tau`; δ → `delta`.
The gradient flows through S and not through the recursion of c, as in the paper.
`lowers: all` is the loss of Zhang et al. (WWW 2026), whose program has one c for all items of a row, lowered by the indicator
of the positive: $c^{k+1} = c^k (1 - I^k_0 - \delta)$.
Differs from the paper: with one relevant item in the list, precision is at most about 1/K, so ℓ stays above about 1 − 1/K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class SmoothI(Params):
    K: int = param(20, "length K of the list; each row takes K softmaxes", Choice(5, 10, 20), ge=1)
    tau: float = param(0.1, "temperature τ that divides the cosine", Range(0.05, 0.3), gt=0)
    delta: float = param(0.1, "offset δ that lowers items already selected", Range(0.05, 0.3), ge=0, lt=1)
    lowers: Literal["each", "all"] = param(
        "each", "whether a rank lowers each item by its own indicator or all by the positive's", Choice("each", "all")
    )


@loss(
    "smoothi-at-k",
    SmoothI,
    similarity="cosine",
    families=("top-k",),
    title="SmoothI@K: smooth Precision@K",
    source="Thonet et al., AAAI 2022",
    pace=5.0,
    gradient_differs="the indicators of earlier ranks are held constant, as in the paper",
)
def smoothi_at_k(s: Scores, p: SmoothI) -> Tensor:
    return 1 - s.sampled.smooth_precision(s.pos, p.K, p.tau, p.delta, together=p.lowers == "all")
