"""The scores of sampled items that all rows of a batch share. Sums over them need no array of the scores.

The kernels of the losses over the whole catalogue compute them, with the drawn items in the place of the catalogue: once per
user where the sum is the same for all of a user's rows, else once per row. What no kernel computes reads the array, which is
computed then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from rankbench.kernels.rows import take_rows
from rankbench.training.sampled_scores import SampledScores
from rankbench.training.user_catalogue import UserCatalogue


@dataclass(frozen=True)
class SharedScores(SampledScores):
    """`by_row()` compares each row with the `drawn` items (n,), of which `counted` count, and `by_user()` each user, whose sums
    are copied to the rows.
    """

    drawn: Tensor = field(kw_only=True)
    counted: int = field(kw_only=True)
    by_row: Callable[[], UserCatalogue] = field(kw_only=True)
    by_user: Callable[[], UserCatalogue] = field(kw_only=True)

    @property
    def n(self) -> float:
        return self.counted

    def logsumexp(self, tau: float = 1.0) -> Tensor:
        return self.by_user().logsumexp(tau)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.by_user().moments()

    def mean_softplus(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._for(shift).mean_softplus(shift)

    def mean_relu(self, shift: Tensor | float = 0.0) -> Tensor:
        return self._for(shift).mean_relu(shift)

    def log_sum_sigmoid(self, shift: Tensor, tau: float, inner: float = 1.0) -> Tensor:
        return self.by_row().log_sum_sigmoid(shift, tau, inner)

    def sum_sigmoid(self, shift: Tensor, inner: float = 1.0) -> Tensor:
        return self.by_row().sum_sigmoid(shift, inner)

    def mean_softplus_of_sigmoid(self, square: float, slope: Tensor, shift: Tensor, inner: float = 1.0) -> Tensor:
        return self.by_user().mean_softplus_of_sigmoid(square, slope, shift, inner)

    def tilted(self, tau: float, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        own = self.by_user()
        instead = own.instead and take_rows(items, own.instead.ids)
        return own.tilted(tau, users, take_rows(items, self.drawn), instead)

    def detached(self) -> SharedScores:
        sides = {"by_row": lambda: self.by_row().detached(), "by_user": lambda: self.by_user().detached()}
        return SharedScores(lambda: self.values.detach(), ids=lambda: self.ids, drawn=self.drawn, counted=self.counted, **sides)

    def _for(self, shift: Tensor | float) -> UserCatalogue:
        return self.by_row() if isinstance(shift, Tensor) and shift.ndim else self.by_user()
