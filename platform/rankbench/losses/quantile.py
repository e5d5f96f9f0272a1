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
        values, row = s.all_positives
        positives = self._pinball(values.detach() - beta[row]).sum()
        weight = (s.n_items - s.n_interactions) / s.neg.shape[1]
        negatives = (weight * self._pinball(s.neg.detach() - beta[:, None]).sum(dim=1)).sum()
        return (positives + negatives) / (s.n_items * len(beta))

    def _pinball(self, x: Tensor) -> Tensor:
        return (1 - self.share) * torch.relu(x) + self.share * torch.relu(-x)
