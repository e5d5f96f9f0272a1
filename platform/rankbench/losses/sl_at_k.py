r"""SL@K, softmax loss weighted by the top-K threshold (Yang et al., KDD 2025, Eq. 3.5 and Algorithm C.1).

$$\ell(u, i) = \sigma\Bigl(\frac{s_{ui} - \beta_u}{\tau_w}\Bigr) \log \sum_{k=1}^{n} \exp\frac{s_{uj_k} - s_{ui}}{\tau_d}$$

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); $\tau_d, \tau_w$ → `tau_d`, `tau_w`; $\beta_u$: K-th largest score of
user u, a constant.
β starts at 0. In every T_beta-th epoch each row sets the β of its user to the K-th largest score among the user's own items and
the row's negatives. This is too low, because other items are not sampled; an item that appears twice counts twice. The gradient
passes through the weight, as in the authors' code.
On the whole catalogue, β is the K-th largest of all scores in every step.
Differs from the paper: a batch updates its β with the scores before its step, and long lists of positives are not truncated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import LossState, Scores, Sizes, loss


@dataclass(frozen=True)
class SLAtK(Params):
    K: int = param(20, "length K of the list whose last score is the threshold", Choice(10, 20, 50), ge=1)
    tau_d: float = param(0.2, "temperature τ_d of the softmax", Range(0.01, 0.5), gt=0)
    tau_w: float = param(2.25, "temperature τ_w of the weight", Range(0.5, 3), gt=0)
    T_beta: int = param(
        20,
        "number of epochs from one update of the thresholds to the next, for objective = sampled; shorter fits leave them at 0",
        Choice(5, 20),
        late={"sampled": "its thresholds were never updated"},
        ge=1,
    )
    detach_weight: bool = param(False, "whether the gradient treats the weight as a constant", Choice(True, False))


class SampledThresholds(LossState):
    """The thresholds `beta` (n_users,), a buffer that some epochs update."""

    of_users = ("beta",)

    def __init__(self, p: SLAtK, sizes: Sizes, generator: Generator):
        super().__init__()
        self.p = p
        self.refreshing = False
        self.register_buffer("beta", torch.zeros(sizes.n_users))

    def begin_epoch(self, epoch: int) -> None:
        self.refreshing = epoch % self.p.T_beta == 0

    @torch.no_grad()
    def refresh(self, s: Scores) -> None:
        """Update β of the batch's users; if a user has several rows, the last one decides."""
        kth = kth_largest(s, self.p.K).to(self.beta.dtype)
        rows = torch.arange(len(kth), device=kth.device)
        last = torch.zeros_like(self.beta, dtype=rows.dtype).scatter_reduce(0, s.users, rows, "amax")[s.users]
        self.beta[s.users] = kth[last]  # all rows of a user write the same value, so their order does not matter


def kth_largest(s: Scores, K: int) -> Tensor:
    """The K-th largest score among a row's own positives and sampled negatives, or the smallest if there are fewer, (B,)."""
    n_rows, n = s.neg.shape
    best = s.neg.topk(min(K, n), dim=1).values
    values = torch.cat([s.all_positives.values, best.flatten()])
    row = torch.cat([s.all_positives.row, torch.arange(n_rows, device=best.device).repeat_interleave(best.shape[1])])
    order = values.argsort(descending=True)
    order = order[row[order].argsort(stable=True)]  # row after row, in decreasing order
    length = row.new_zeros(n_rows).index_add(0, row, torch.ones_like(row))
    return values[order[length.cumsum(0) - length + (length - 1).clamp(max=K - 1)]]


@loss(
    "sl-at-k",
    SLAtK,
    similarity="cosine",
    over_catalogue=True,
    needs=("all_positives",),
    state=SampledThresholds,
    unused=lambda p, objective: ("T_beta",) if objective == "catalogue" else (),
    families=("softmax", "top-k"),
    title="SL@K: softmax loss weighted by the top-K threshold",
    source="Yang et al., KDD 2025",
)
def sl_at_k(s: Scores, p: SLAtK, state: SampledThresholds) -> Tensor:
    exact = s.others.kth_largest(min(p.K, s.n_items))
    weight = torch.sigmoid((s.pos - (state.beta[s.users] if exact is None else exact)) / p.tau_w)
    if p.detach_weight:
        weight = weight.detach()
    if state.refreshing and exact is None:
        state.refresh(s)
    return weight * (s.others.logsumexp(p.tau_d) - s.pos / p.tau_d)
