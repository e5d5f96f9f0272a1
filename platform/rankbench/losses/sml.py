r"""SML, symmetric metric learning with adaptive margins (Li et al., AAAI 2020).

$$\ell(u, i) = [d(u, i) - d(u, j) + m_u]_+ + \lambda\, [d(u, i) - d(i, j) + n_i]_+
  - \gamma \bigl(\operatorname*{mean}_u m_u + \operatorname*{mean}_i n_i\bigr)$$

with learned margins $m_u, n_i \in [0, l]$; j is the sampled negative nearest to u, and d are squared distances of vectors in
the unit ball.

paper $d(u, i)$ → −`s.pos` (B,), $d(u, j)$ → −`s.neg` (B, n), $d(i, j)$ → −`s.rival(k)`; λ → `lam`; γ → `gamma`; l → `margin`
Differs from the paper: the authors' code sums over the rows of a batch, so its γ is `gamma` times the batch size: the γ of
10 that programs have is 0.005 in batches of 2,048, and the default is larger. At equilibrium a fraction `gamma` of the rows has
an active user hinge; if gamma is 1 or more, all margins stay at l. The margin of an item leaves l only if the item has more
than γ/λ times as many interactions as items have on average: with the defaults 30 times, so that few of them learn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from rankbench.core.params import Params, Range, param
from rankbench.losses.spec import LossState, Scores, Sizes, loss


@dataclass(frozen=True)
class SML(Params):
    lam: float = param(0.01, "weight λ of the item-centred hinge", Range(0.001, 1), ge=0)
    gamma: float = param(
        0.3, "reward γ of large margins; about the fraction of rows whose user hinge stays active", Range(0.01, 1), ge=0
    )
    margin: float = param(1.0, "largest margin l, which is also the initial margin", Range(0.5, 2), gt=0)


class Margins(LossState):
    """One margin per user (n_users,) and per item (n_items,)."""

    def __init__(self, p: SML, sizes: Sizes, generator: Generator):
        super().__init__()
        self.largest = p.margin
        self.user = nn.Parameter(torch.full((sizes.n_users,), float(p.margin)))
        self.item = nn.Parameter(torch.full((sizes.n_items,), float(p.margin)))

    @torch.no_grad()
    def project(self) -> None:
        self.user.clamp_(0, self.largest)
        self.item.clamp_(0, self.largest)


@loss(
    "sml",
    SML,
    similarity="distance",
    only_because="it learns a metric",
    unit_ball=True,
    needs=("rivals",),
    state=Margins,
    families=("pairwise", "distance"),
    title="SML: metric learning with learned margins of users and items",
    source="Li et al., AAAI 2020",
)
def sml(s: Scores, p: SML, state: Margins) -> Tensor:
    nearest, k = s.neg.max(dim=1)
    around_user = torch.relu(nearest - s.pos + state.user[s.users])
    around_item = torch.relu(s.rival(k) - s.pos + state.item[s.items])
    # The mean over all users and items, not only those of the batch: a margin without a reward would only shrink.
    reward = state.user.mean() + state.item.mean()
    return around_user + p.lam * around_item - p.gamma * reward
