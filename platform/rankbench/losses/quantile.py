r"""One threshold per user at its top-K quantile, learned by quantile regression (Zhang et al., WWW 2026, Eq. 3.3).

$$\begin{aligned}
Q(u) &= \frac{1}{N} \Bigl\{\sum_{i \in P_u} \rho(s_{ui} - \beta_u) + w_u \sum_{k=1}^{n} \rho(s_{uj_k} - \beta_u)\Bigr\}, \qquad
  w_u = \frac{N - n_u}{n} \\
\rho(x) &= \Bigl(1 - \frac{K}{N}\Bigr) [x]_+ + \frac{K}{N} [-x]_+ \end{aligned}$$

Its minimisers are all values between the (K+1)-th and the K-th largest of the user's N scores. This is not a registered loss:
Talos and AATP keep the thresholds as their state.
The paper draws its negatives from the items that are not the user's. Where other distributions are chosen, $w_u$ is
$1/(n q_k)$ for a draw with probability $q_k$, and the sum over the user's items is left out if they can be drawn, too.
With objective=catalogue, the thresholds are the K-th largest scores themselves (`threshold: exact`), or learned from the sum
over all N items (`threshold: learned`). Learned ones start at 0 and follow slowly, about beta_lr per step.
paper $s_{ui}$ of all $i \in P_u$ → `s.all_positives`; $s_{uj}$ → `s.neg` (B, n); $n_u$ → `s.n_interactions` (B,); N →
`s.n_items`
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from rankbench.losses.spec import LossState, Scores, Sizes


class Thresholds(LossState):
    """The thresholds `beta` (n_users,), starting at 0, with their own learning rate, which is about the size of a step.

    The loss has the parameters K, beta_lr and threshold. With threshold = exact, those of rows that are compared with the whole
    catalogue are not learned.
    """

    def __init__(self, p: Any, sizes: Sizes, generator: Generator):
        super().__init__()
        self.learning_rate, self.exact = p.beta_lr, p.threshold == "exact"
        self.K = min(p.K, sizes.n_items)
        self.share = self.K / sizes.n_items  # a fraction of the catalogue, however few items are sampled
        self.beta = nn.Parameter(torch.zeros(sizes.n_users))

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        return [{"params": [self.beta], "lr": self.learning_rate}]

    def of(self, s: Scores) -> Tensor:
        """β of each row, (B,), without gradient: the learned one, or the quantile itself if it is known and `exact`."""
        known = s.others.kth_largest(self.K) if self.exact else None
        return self.beta.detach()[s.users] if known is None else known

    def own_loss(self, s: Scores) -> Tensor | None:
        """The mean of Q over the rows, which trains the thresholds; None if they are not learned."""
        if s.others.complete:
            return None if self.exact else self._of_all(s)
        beta = self.beta[s.users]
        value, slope = self._q(s, beta.detach())
        # A function that is linear in β with the slope of Q: no array of the scores' size is kept for the backward pass.
        return (value + slope * (beta - beta.detach())).mean() / s.n_items

    def _of_all(self, s: Scores) -> Tensor:
        """The mean of Q over rows whose scores of all items are known: in `s.others`, or there and in `s.own_items`."""
        others, own, beta = s.others.detached(), s.own_items, self.beta[s.users]
        above, total = others.n * others.mean_relu(beta), others.n * others.moments()[0]
        if own is not None and (isinstance(others.n, Tensor) or others.n < s.n_items):
            user = torch.zeros(own.n_groups, dtype=torch.int64, device=beta.device).index_copy(0, own.of, s.users)
            values = own.values.detach()
            above = above + own.sum(torch.relu(values - self.beta[user][own.group]))
            total = total + own.sum(values)
        return (above - self.share * (total - s.n_items * beta)).mean() / s.n_items

    @torch.no_grad()
    def _q(self, s: Scores, beta: Tensor) -> tuple[Tensor, Tensor]:
        """N·Q of each row and its derivative with respect to β, (B,) each. ρ(x) = [x]_+ − (K/N) x."""
        value, slope = self._of_drawn(s, beta)
        if s.own_drawn:
            return value, slope
        values, row = s.all_positives
        x = values - beta[row]
        parts = torch.relu(x) - self.share * x, self.share - (x > 0).to(values.dtype)
        own, own_slope = (values.new_zeros(len(beta)).index_add(0, row, each) for each in parts)
        return own + value, own_slope + slope

    def _of_drawn(self, s: Scores, beta: Tensor) -> tuple[Tensor, Tensor]:
        """The part of the drawn items."""
        weight = _weights(s)
        own = weight.shape[1] > 1  # of each item, not of the row
        hinges, total, above = s.sampled.above(beta, weight if own else None)
        count: Tensor | float = s.sampled.n
        if own:
            # The sum of the weights estimates the number of the items that can be drawn, and N is known.
            total, count = total + (weight.sum(dim=1) - s.n_items) * beta, s.n_items
        value, slope = hinges - self.share * total, self.share * count - above
        return (value, slope) if own else (weight[:, 0] * value, weight[:, 0] * slope)


def _weights(s: Scores) -> Tensor:
    """w of each drawn item, of a shape that broadcasts to (B, n)."""
    n = s.sampled.n
    if s.logq is None:
        return ((s.n_items - s.n_interactions) / n)[:, None]
    same = s.logq.stride(1) == 0  # for all items of a row, as an expanded view shows
    return (-(s.logq[:, :1] if same else s.logq)).exp() / n


def unused(p: Any, objective: str) -> tuple[str, ...]:
    """The names of the parameters that a fit does not read: samples do not have exact thresholds, and these do not learn."""
    if objective == "sampled":
        return ("threshold",)
    return ("beta_lr",) if p.threshold == "exact" else ()
