r"""AATP, accuracy at the top (Boyd et al., NeurIPS 2012), as Zhang et al. (WWW 2026) adapt it to recommendation.

$$\ell(u, i) = [\beta_u - s_{ui} + 1]_+ + \frac{1}{n} \sum_{k=1}^{n} [s_{uj_k} - \beta_u + 1]_+$$

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); $\beta_u$ → the learned threshold of `quantile.py`, treated as a
constant.
With cosines and a margin of 1 the hinges are seldom zero, so the loss is nearly linear: 2 − $s_{ui}$ + the mean of $s_{uj_k}$.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.quantile import Thresholds, unused
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class AATP(Params):
    K: int = param(20, "length K of the list whose last score is the threshold", Choice(10, 20, 50), ge=1)
    beta_lr: float = param(
        1e-3, "learning rate of the thresholds, if they are learned", Range(1e-4, 1e-1, exponents=True), gt=0
    )
    threshold: Literal["exact", "learned"] = param(
        "exact", "with objective=catalogue: the K-th largest scores, or thresholds that are learned", Choice("exact", "learned")
    )


@loss(
    "aatp",
    AATP,
    similarity="cosine",
    over_catalogue=True,
    needs=("all_positives",),
    state=Thresholds,
    unused=unused,
    families=("top-k",),
    title="AATP: hinges around the top-K threshold",
    source="Boyd et al., NeurIPS 2012; Zhang et al., WWW 2026",
)
def aatp(s: Scores, p: AATP, state: Thresholds) -> Tensor:
    beta = state.of(s)
    return torch.relu(beta - s.pos + 1) + s.others.mean_relu(beta - 1)
