r"""BSL, bilateral softmax loss (Wu et al., ICDE 2024): one temperature for positives and one for negatives.

$$
\ell(u, i) = -\log \operatorname*{mean}_{i' \in P_u} e^{s_{ui'}/\tau_1} + \frac{\tau_2}{\tau_1} \log \sum_j e^{s_{uj}/\tau_2}
$$

paper s → `s.pos` (B,), `s.neg` (B, n), cosines; $\tau_1, \tau_2$ → `tau1`, `tau2`; $P_u$: the items of u.
`form: single` uses only the row's own positive: the loss is τ₂/τ₁ times SL with τ₂, so tau1 only scales it. `form: multi` takes
the mean over the rows of the batch that have the same user.
Differs from the paper: the loss is divided by τ₁, as in the authors' program; the sum over j runs over the sampled negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.others import OwnItems
from rankbench.losses.spec import Scores, Twin, loss


@dataclass(frozen=True)
class BSL(Params):
    tau1: float = param(0.2, "temperature τ₁ of positives; for form = single it only scales the loss", Range(0.05, 0.5), gt=0)
    tau2: float = param(0.2, "temperature τ₂ of negatives", Range(0.01, 0.5), gt=0)
    form: Literal["single", "multi"] = param(
        "single",
        "positives of a row: its own item (single), or all its user's items in the batch (multi)",
        Choice("single", "multi"),
    )


@loss(
    "bsl",
    BSL,
    similarity="cosine",
    over_catalogue=True,
    twin=lambda p: Twin("sl", (p.tau2, False), p.tau2 / p.tau1) if p.form == "single" else None,
    families=("softmax",),
    title="BSL: softmax with two temperatures",
    source="Wu et al., ICDE 2024",
)
def bsl(s: Scores, p: BSL) -> Tensor:
    if p.form == "multi":
        users, group = s.users.unique(return_inverse=True)
        pos = OwnItems(s.pos, group, group, len(users)).logmeanexp(p.tau1)
    else:
        pos = s.pos / p.tau1
    return p.tau2 / p.tau1 * s.others.logsumexp(p.tau2) - pos
