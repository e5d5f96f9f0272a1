r"""PSL, pairwise softmax loss (Yang et al., NeurIPS 2024, Eq. 4.1).

$$\ell(u, i) = \log \sum_j \sigma(d_{uij})^{1/\tau}, \qquad d_{uij} = f(u, j) - f(u, i)$$

paper f → `s.pos` (B,), `s.neg` (B, n), half the cosine; τ → `tau`; σ → `surrogate`, one of the paper's three
Differs from the paper: the sum over all items is replaced by the sum over sampled negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss

# log σ(x) on [−1, 1]; the clamp avoids log(0) for a negative at d = −1. 1 + tanh x is 2 sigmoid(2x), whose sums have a kernel.
LOG_SURROGATE = {
    "atan": lambda x: torch.log1p(torch.atan(x)),
    "relu": lambda x: torch.log((1 + x).clamp(min=1e-6)),
}


@dataclass(frozen=True)
class PSL(Params):
    tau: float = param(0.1, "temperature τ, applied to half the cosine", Range(0.005, 0.3), gt=0)
    surrogate: Literal["tanh", "atan", "relu"] = param("tanh", "surrogate activation σ", Choice("tanh", "atan", "relu"))


@loss(
    "psl",
    PSL,
    similarity="half-cosine",
    only_because="its surrogates need half cosines, whose differences lie in [−1, 1]",
    families=("softmax",),
    title="PSL: softmax with a bounded surrogate",
    source="Yang et al., NeurIPS 2024",
)
def psl(s: Scores, p: PSL) -> Tensor:
    if p.surrogate == "tanh":
        return s.others.log_sum_sigmoid(2 * s.pos, p.tau, inner=0.5) + math.log(2) / p.tau
    d = s.neg - s.pos[:, None]
    # σ(d)^(1/τ) overflows float32 at the values of τ that are searched; log σ(d) / τ does not.
    return torch.logsumexp(LOG_SURROGATE[p.surrogate](d) / p.tau, dim=1)
