r"""SL, softmax loss with a temperature (Wu et al., TOIS 2024).

$$\ell(u, i) = \log \sum_j e^{d_{uij}/\tau}, \qquad d_{uij} = s_{uj} - s_{ui}$$

paper s → `s.pos` (B,), `s.neg` (B, n), cosines; τ → `tau`
Differs from the paper: the sum over all items runs over the sampled negatives, without the positive, as in programs that
compare with SL (Yang et al., NeurIPS 2024 and KDD 2025); `include_positive` adds the positive, which gives InfoNCE.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, Twin, loss


@dataclass(frozen=True)
class SL(Params):
    tau: float = param(0.2, "temperature τ that divides the cosine", Range(0.01, 0.5), gt=0)
    include_positive: bool = param(False, "whether the sum includes the positive", Choice(False, True))


@loss(
    "sl",
    SL,
    similarity="cosine",
    over_catalogue=True,
    twin=lambda p: Twin("sl", (p.tau, p.include_positive)),
    families=("softmax",),
    title="SL: softmax with a temperature",
    source="Wu et al., TOIS 2024",
)
def sl(s: Scores, p: SL) -> Tensor:
    log_sum = s.others.logsumexp(p.tau) - s.pos / p.tau
    return -logsigmoid(-log_sum) if p.include_positive else log_sum
