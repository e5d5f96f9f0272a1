r"""AdvInfoNCE: InfoNCE with adversarially weighted negatives (Zhang et al., NeurIPS 2023).

$$\begin{aligned} & \min_\theta \max_p \; \operatorname{softplus}\Bigl(\log(\kappa n)
  + \log\sum_{k=1}^{n} p(j_k|u)\, e^{s_{uj_k}/\tau} - \frac{s_{ui}}{\tau}\Bigr), \\
& p(\cdot|u) = \operatorname{softmax}_k(a_u \cdot c_{j_k}) \end{aligned}$$

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); κ → `kappa`, weight of the negatives; τ → `tau`; $\delta_{uj} =
\log(n\,p(j|u))$.
Epochs T_adv, 2 T_adv, ... (at most E_adv of them) train only the adversary a, c, by gradient ascent; all other epochs train
only the model. The radius of the paper's ball around the uniform p is not enforced: E_adv and adv_lr determine it, as in the
authors' code. In the program of Zhang et al. (WWW 2026), the model is trained in the epochs of the adversary, too.
Differs from the paper: p is normalised over the row's sampled negatives, as in the authors' code, or over all items that the
positive is compared with (objective=catalogue).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import LossState, Scores, Sizes, ascending, loss


@dataclass(frozen=True)
class AdvInfoNCE(Params):
    tau: float = param(0.1, "temperature τ that divides the cosine", Range(0.05, 0.3), gt=0)
    kappa: float = param(64.0, "weight κ of the negatives", Range(1, 256), gt=0)
    T_adv: int = param(
        5,
        "number of epochs from one adversarial epoch to the next; shorter fits have none",
        Choice(5, 10, 15, 20),
        late=dict.fromkeys(("sampled", "catalogue"), "it never met a trained adversary"),
        rests=True,
        ge=1,
    )
    E_adv: int = param(15, "largest number of adversarial epochs", Range(5, 30), ge=0)
    adv_lr: float = param(5e-5, "learning rate of the adversary", Range(1e-5, 1e-4, exponents=True), gt=0)


class Adversary(LossState):
    """The adversary: one vector per user and per item, of the model's dimension, trained in its own epochs only."""

    def __init__(self, p: AdvInfoNCE, sizes: Sizes, generator: Generator):
        super().__init__()
        self.p = p
        self.user = nn.Parameter(torch.empty(sizes.n_users, sizes.embedding_dim))
        self.item = nn.Parameter(torch.empty(sizes.n_items, sizes.embedding_dim))
        for table in (self.user, self.item):
            nn.init.xavier_normal_(table, generator=generator)

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        return [{"params": [self.user, self.item], "lr": self.p.adv_lr}]

    def begin_epoch(self, epoch: int) -> None:
        round_, rest = divmod(epoch, self.p.T_adv)
        self.alone = rest == 0 and round_ <= self.p.E_adv


@loss(
    "advinfonce",
    AdvInfoNCE,
    similarity="cosine",
    over_catalogue=True,
    state=Adversary,
    families=("softmax",),
    title="AdvInfoNCE: InfoNCE with adversarially weighted negatives",
    source="Zhang et al., NeurIPS 2023",
    pace=3.0,
    tables=1,
)
def advinfonce(s: Scores, p: AdvInfoNCE, state: Adversary) -> Tensor:
    # With gradients in the epochs of the model, the adversary would help it.
    pos, others, user, item = s.pos, s.others, state.user.detach(), state.item.detach()
    if state.alone:
        pos, others, user, item = s.pos.detach(), s.others.detached(), state.user, state.item
    weighted, weights = others.tilted(p.tau, user[s.users], item)
    log_mean = weighted - weights  # log Σ_k p(j_k|u) exp(s_uj_k/τ)
    weight = math.log(p.kappa) + torch.as_tensor(s.others.n).to(pos).log()
    return softplus(weight + (ascending(log_mean) if state.alone else log_mean) - pos / p.tau)
