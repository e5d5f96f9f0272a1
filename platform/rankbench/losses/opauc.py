r"""OPAUC, one-way partial AUC: BPR on the hardest negatives (Shi et al., WWW 2023).

$$\begin{aligned} \textsf{dns:} \quad & \ell(u, i) = \operatorname{mean}\bigl\{\operatorname{softplus}(o_{uj} - o_{ui}) :
  j \text{ among the } \lceil \beta n \rceil \text{ highest of } n \text{ sampled}\bigr\} \\
\textsf{kl:} \quad & \ell(u, i) = \tau \log \frac{1}{n} \sum_{k=1}^{n}
  \exp\frac{\operatorname{softplus}(o_{uj_k} - o_{ui})}{\tau} \end{aligned}$$

dns is the AUC at a false positive rate of at most β (a CVaR, whose threshold is found by sorting); kl is its soft form.

paper $o_{ui}$ → `s.pos` (B,), $o_{uj}$ → `s.neg` (B, n); β → `beta`; τ → `tau`.
For β below 1/n, dns uses only the hardest negative.
The formulas follow from the definition and the duality of CVaR and KL, not line by line from the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class OPAUC(Params):
    form: Literal["dns", "kl"] = param(
        "dns", "form of the loss: exact, on the hardest negatives (dns), or soft (kl)", Choice("dns", "kl")
    )
    beta: float = param(
        0.1,
        "fraction β of the negatives that are used, for form = dns",
        Range(0.001, 1),
        used=lambda p: p.form == "dns",
        gt=0,
        le=1,
    )
    tau: float = param(0.2, "temperature τ, for form = kl", Range(0.05, 5), used=lambda p: p.form == "kl", gt=0)


@loss(
    "opauc",
    OPAUC,
    similarity="dot",
    families=("auc",),
    title="OPAUC: BPR on the hardest negatives",
    source="Shi et al., WWW 2023",
    pace=2.5,
)
def opauc(s: Scores, p: OPAUC) -> Tensor:
    n = s.neg.shape[1]
    if p.form == "dns":
        hardest = math.ceil(p.beta * n * (1 - 1e-12))  # 0.07 · 100 is 7.000000000000001 in floating point
        return softplus(s.neg.topk(hardest, dim=1).values - s.pos[:, None]).mean(dim=1)
    pairs = softplus(s.neg - s.pos[:, None])
    return p.tau * (torch.logsumexp(pairs / p.tau, dim=1) - math.log(n))
