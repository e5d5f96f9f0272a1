r"""UIB, user interest boundary (Zhuo et al., WWW 2022).

$$\ell(u, i) = (1 - a)\, \varphi(b_u - o_{ui}) + \frac{a}{n} \sum_{k=1}^{n} \varphi(o_{uj_k} - b_u)$$

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); $b_u$ → `boundary`: a linear map of the user's vector, or one number
per user.
φ → `phi`: softplus(x), or the hinge $[x + \text{margin}]_+$. The boundary is learned with the model, and is not needed for
ranking.
Differs from the papers on RG² and RG×, where UIB is a baseline whose φ is MarginLoss, the hinge: their second sum runs over
interactions in one of the two, here over negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import LossState, Scores, Sizes, loss


@dataclass(frozen=True)
class UIB(Params):
    boundary: Literal["linear", "embedding"] = param(
        "linear",
        "boundary b_u: a linear map of the user's vector, or one number per user (embedding)",
        Choice("linear", "embedding"),
    )
    phi: Literal["softplus", "hinge"] = param("softplus", "the pointwise loss φ", Choice("softplus", "hinge"))
    a: float = param(0.5, "weight of the negatives", Range(0.1, 0.9), gt=0, lt=1)
    margin: float = param(1.0, "margin of the hinge, for phi = hinge", Range(0, 2), used=lambda p: p.phi == "hinge", ge=0)


class Boundary(LossState):
    """b_u = w · p_u + c with learned w and c, or a learned number per user that starts at 0."""

    def __init__(self, p: UIB, sizes: Sizes, generator: Generator):
        super().__init__()
        self.linear = p.boundary == "linear"
        if self.linear:
            reach = sizes.embedding_dim**-0.5
            self.weight = nn.Parameter(torch.empty(sizes.embedding_dim).uniform_(-reach, reach, generator=generator))
            self.offset = nn.Parameter(torch.zeros(()))
        else:
            self.value = nn.Parameter(torch.zeros(sizes.n_users))

    def forward(self, s: Scores) -> Tensor:
        return s.user_vectors @ self.weight + self.offset if self.linear else self.value[s.users]


@loss(
    "uib",
    UIB,
    similarity="dot",
    needs=("user_vectors",),
    over_catalogue=True,
    state=Boundary,
    families=("pointwise",),
    title="UIB: pointwise loss around a learned boundary",
    source="Zhuo et al., WWW 2022",
)
def uib(s: Scores, p: UIB, state: Boundary) -> Tensor:
    b = state(s)
    if p.phi == "softplus":
        return (1 - p.a) * softplus(b - s.pos) + p.a * s.others.mean_softplus(b)
    return (1 - p.a) * torch.relu(b - s.pos + p.margin) + p.a * s.others.mean_relu(b - p.margin)
