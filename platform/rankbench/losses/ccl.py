"""CCL, cosine contrastive loss (Mao et al., CIKM 2021, SimpleX): negatives below a margin are ignored.

    ℓ(u, i) = 1 − s_ui + w/n Σ_j [s_uj − ε]₊

paper s → s.pos (B,), s.neg (B, n), cosines;  w → w;  ε → margin
The SimpleX program can also omit w and sum over negatives, which is w = n.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import relu

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class CCL:
    w: float = param(0.3, "weight of the mean over negatives, ≥ 0", "0.1 to 1000, log scale")
    margin: float = param(0.8, "cosine ε above which a negative contributes, 0 ≤ margin < 1", "0 to 0.9")

    def __post_init__(self) -> None:
        require(self.w >= 0, f"w must be >= 0, got {self.w}")
        require(0 <= self.margin < 1, f"margin must lie in [0, 1), got {self.margin}")


@loss(
    "ccl",
    CCL,
    similarity="cosine",
    sampler="uniform-all",
    title="CCL: cosine contrastive loss with a margin",
    source="Mao et al., CIKM 2021",
)
def ccl(s: Scores, p: CCL) -> Tensor:
    return 1 - s.pos + p.w * relu(s.neg - p.margin).mean(dim=1)
