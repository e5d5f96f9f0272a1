"""A threshold a user at its top-K quantile, learned by quantile regression (Zhang et al., WWW 2026, Eq. 3.3).

    Q(u) = (1/N) { Σ_{i ∈ P_u} ρ(s_ui − β_u) + w_u Σ_k ρ(s_uj_k − β_u) },    w_u = (N − n_u)/n
    ρ(x) = (1 − K/N) [x]_+ + (K/N) [−x]_+

Its minimisers are all values between the (K+1)-th and the K-th largest of the user's N scores. No loss of its own: Talos
and AATP keep the table as their state.
paper s_ui of all i ∈ P_u → s.all_positives;  s_uj → s.neg (B, n);  n_u → s.n_interactions (B,);  N → s.n_items
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rankbench.losses.spec import LossState, Scores, Sizes


class Thresholds(LossState):
    """`beta` (n_users,), from 0, with a learning rate of its own: a step moves a threshold by about that much."""

    def __init__(self, sizes: Sizes, K: int, learning_rate: float):
        super().__init__()
        self.learning_rate = learning_rate
        self.share = min(K, sizes.n_items) / sizes.n_items  # of the catalogue, however few items are sampled
        self.beta = nn.Parameter(torch.zeros(sizes.n_users))

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        return [{"params": [self.beta], "lr": self.learning_rate}]

    def of(self, users: Tensor) -> Tensor:
        """β of each row, (B,), a constant: the loss of the model does not move it."""
        return self.beta.detach()[users]

    def own_loss(self, s: Scores) -> Tensor:
        """The mean of Q over the rows."""
        beta = self.beta[s.users]
        value, slope = self._q(s, beta.detach())
        # Linear in β with the slope that Q has here: nothing of the scores' size waits for the backward pass.
        return (value + slope * (beta - beta.detach())).mean() / s.n_items

    @torch.no_grad()
    def _q(self, s: Scores, beta: Tensor) -> tuple[Tensor, Tensor]:
        """N·Q of each row and its derivative with respect to β, (B,) each. ρ(x) = [x]_+ − (K/N) x."""
        values, row = s.all_positives
        x = values - beta[row]
        above = torch.bincount(row, torch.relu(x) - self.share * x, len(beta)).to(values)
        slope = torch.bincount(row, self.share - (x > 0).to(values.dtype), len(beta)).to(values)
        weight = (s.n_items - s.n_interactions) / s.neg.shape[1]
        y = s.neg - beta[:, None]
        share = self.share * y.shape[1]
        others = y.clamp(min=0).sum(dim=1) - self.share * y.sum(dim=1)
        return above + weight * others, slope + weight * (share - (y > 0).sum(dim=1, dtype=y.dtype))
