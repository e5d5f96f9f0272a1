r"""LLPAUC, lower-left partial AUC, as a pointwise minimax problem (Shi et al., WWW 2024).

$$\begin{aligned}
\ell(u, i) &= -s^+ - \frac{r(-\ell^+ - s^+)}{\alpha} + s^- + \frac{1}{n} \sum_{k=1}^{n} \frac{r(\ell^-_k - s^-)}{\beta} - g^2
  + \theta_a (a + g) + \theta_b (g + 1 - b) \\
\ell^+ &= (p - a)^2 - 2 (1 + g)\, p, \qquad \ell^- = (q - b)^2 + 2 (1 + g)\, q, \qquad
  r(x) = \tfrac{1}{5} \operatorname{softplus}(5 x) \end{aligned}$$

minimised over the model, a, b, $s^-, \theta_a, \theta_b$ and maximised over g and $s^+$, with one value of each for all users.
It represents the mean of $(1 - (p - q))^2 - 1$ over the highest scoring fraction α of the positives and fraction β of the
negatives.

paper p → sigmoid(`s.pos`/`tau`) (B,), q → sigmoid(`s.neg`/`tau`) (B, n); α, β → `alpha`, `beta`.
The paper has tau = 1. A cosine then stays between 0.27 and 0.73 inside the sigmoid, where the loss is nearly linear.
θ ≥ 0 penalise g below max(−a, b − 1); g itself is kept in \[−1, 1\], as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from rankbench.core.params import Fixed, Params, Range, param
from rankbench.losses.spec import LossState, Scores, Sizes, ascending, loss

SHARPNESS = 5  # of r, the smooth hinge


@dataclass(frozen=True)
class LLPAUC(Params):
    alpha: float = param(0.7, "fraction α of positives: upper bound of the true positive rate", Range(0.1, 0.9), gt=0, le=1)
    beta: float = param(0.1, "fraction β of negatives: upper bound of the false positive rate", Range(0.01, 0.9), gt=0, le=1)
    tau: float = param(1.0, "temperature that divides the scores inside the sigmoid", Fixed("0.1 to 1; 1 in the paper"), gt=0)


class Saddle(LossState):
    """The seven scalars of the minimax problem."""

    def __init__(self, p: LLPAUC, sizes: Sizes, generator: Generator):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(1.0))
        self.b = nn.Parameter(torch.tensor(0.0))
        self.g = nn.Parameter(torch.tensor(0.0))
        self.s_pos = nn.Parameter(torch.tensor(0.5))
        self.s_neg = nn.Parameter(torch.tensor(0.5))
        self.theta_a = nn.Parameter(torch.tensor(0.5))
        self.theta_b = nn.Parameter(torch.tensor(0.5))

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        return [
            {"params": [self.a, self.b, self.theta_a, self.theta_b], "lr": learning_rate},
            {"params": [self.g, self.s_pos, self.s_neg], "lr": 2 * learning_rate},
        ]

    @torch.no_grad()
    def project(self) -> None:
        self.a.clamp_(0, 1)
        self.b.clamp_(0, 1)
        self.g.clamp_(-1, 1)
        self.s_pos.clamp_(-1, 4)
        self.s_neg.clamp_(0, 5)
        self.theta_a.clamp_(min=0)
        self.theta_b.clamp_(min=0)


def smooth_hinge(x: Tensor) -> Tensor:
    return softplus(SHARPNESS * x) / SHARPNESS


@loss(
    "llpauc",
    LLPAUC,
    similarity="dot",
    over_catalogue=True,
    state=Saddle,
    families=("auc",),
    title="LLPAUC: lower-left partial AUC",
    source="Shi et al., WWW 2024",
    pace=2.0,
)
def llpauc(s: Scores, p: LLPAUC, state: Saddle) -> Tensor:
    a, b, s_neg = state.a, state.b, state.s_neg
    g, s_pos = ascending(state.g), ascending(state.s_pos)
    hit = torch.sigmoid(s.pos / p.tau)
    loss_pos = (hit - a).square() - 2 * (1 + g) * hit

    # r(ℓ⁻ − s⁻) of ℓ⁻ = q² + 2 (1 + g − b) q + b².
    line, shift = 2 * SHARPNESS * (1 + g - b), SHARPNESS * (s_neg - b.square())
    excess = s.others.mean_softplus_of_sigmoid(SHARPNESS, line, shift, p.tau) / SHARPNESS
    positive = -s_pos - smooth_hinge(-loss_pos - s_pos) / p.alpha
    negative = s_neg + excess / p.beta
    return positive + negative - g.square() + state.theta_a * (a + g) + state.theta_b * (g + 1 - b)
