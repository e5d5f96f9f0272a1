r"""Talos, softmax loss around a learned top-K threshold (Zhang et al., WWW 2026, Eq. 3.7).

$$\ell(u, i) = \log \sum_{k=1}^{n} \sigma(s_{uj_k} - \beta_u)^{1/\tau} - \log \sigma(s_{ui} - \beta_u)^{1/\tau}$$

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); τ → `tau`, outside of σ; $\beta_u$ → the learned threshold of
`quantile.py`, a constant.
`ablation` selects a row of Table 4.1: `quantile` sets β = 0, `outside` puts τ inside of σ, `denominator` replaces the sum by K.
Differs from the paper: the sum runs over the sampled negatives, without the positive, as in the authors' code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.quantile import Thresholds, unused
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class Talos(Params):
    tau: float = param(0.1, "temperature τ", Range(0.05, 0.3), gt=0)
    K: int = param(20, "length K of the list whose last score is the threshold", Choice(10, 20, 50), ge=1)
    beta_lr: float = param(
        1e-3, "learning rate of the thresholds, if they are learned", Range(1e-4, 1e-1, exponents=True), gt=0
    )
    threshold: Literal["exact", "learned"] = param(
        "exact", "with objective=catalogue: the K-th largest scores, or thresholds that are learned", Choice("exact", "learned")
    )
    ablation: Literal["none", "quantile", "outside", "denominator"] = param(
        "none", "part of the loss that is removed", Choice("none", "quantile", "outside", "denominator")
    )


@loss(
    "talos",
    Talos,
    similarity="cosine",
    over_catalogue=True,
    needs=("all_positives",),
    state=Thresholds,
    unused=unused,
    families=("softmax", "top-k"),
    title="Talos: softmax loss around a learned top-K threshold",
    source="Zhang et al., WWW 2026",
)
def talos(s: Scores, p: Talos, state: Thresholds) -> Tensor:
    def log_activation(x: Tensor) -> Tensor:
        return logsigmoid(x / p.tau) if p.ablation == "outside" else logsigmoid(x) / p.tau

    beta = state.of(s) if p.ablation != "quantile" else torch.zeros_like(s.pos)
    positive = log_activation(s.pos - beta)
    if p.ablation == "denominator":
        return math.log(p.K) - positive
    if p.ablation == "outside":
        return s.others.log_sum_sigmoid(beta / p.tau, 1.0, p.tau) - positive
    return s.others.log_sum_sigmoid(beta, p.tau) - positive
