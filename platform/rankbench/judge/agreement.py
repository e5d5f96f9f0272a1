"""Whether measured numbers agree with published ones: each by its interval and its distance, and the order of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rankbench.core.rng import stream
from rankbench.judge.ranking import kendall

RESAMPLES = 2000
Z = 1.959964  # half the width of a 95 % interval in standard deviations


State = Literal["within the interval", "within 1 %", "within 3 %", "off"]


@dataclass(frozen=True)
class Agreement:
    """A published number of a metric, and the measured mean with its 95 % interval over users. Of several runs with different
    seeds, all three are means over the runs; costs and simulations have no `seeds` in this sense: 0.
    """

    metric: str
    published: float
    mean: float
    low: float | None
    high: float | None
    seeds: int = 1

    @property
    def difference(self) -> float:
        return self.mean - self.published

    @property
    def relative(self) -> float:
        if not self.difference:
            return 0.0
        return self.difference / self.published if self.published else float("inf")

    @property
    def state(self) -> State:
        if self.low is not None and self.high is not None and self.low <= self.published <= self.high:
            return "within the interval"
        return "within 1 %" if self.within(0.01) else "within 3 %" if self.within(0.03) else "off"

    def within(self, share: float) -> bool:
        """Whether the difference is at most this share of the published number, up to rounding in the last digits."""
        return abs(self.relative) <= share + 1e-12

    @property
    def half_width(self) -> float | None:
        """Half the interval, as a share of the mean."""
        return None if self.low is None or self.high is None or not self.mean else (self.high - self.low) / 2 / self.mean

    def by_chance(self, others: Sequence[float]) -> float:
        """Return the share of `others`, numbers that are published of something else, that are within 3 % or the interval."""
        return sum(replace(self, published=other).state != "off" for other in others) / len(others)


@dataclass(frozen=True)
class OrderAgreement:
    """Kendall's tau-b of `rows` rows in a metric; from `low` to `high` it would be in 95 % of repeated measurements."""

    metric: str
    rows: int
    tau: float
    low: float
    high: float


def order_agreement(metric: str, cells: Sequence[Agreement]) -> OrderAgreement:
    """Compare the order of the measured means with that of the published numbers, which are not all equal.

    A repeated measurement is drawn from normal distributions around the measured means, as wide as their intervals. Its noise
    comes on top of that of the means, and changes the order of rows that are close to each other: repetitions agree with the
    paper less than the measurement does, and all of them may lie below its tau. This is no confidence interval. Users are the
    same for all rows, so differences between rows are less uncertain than the draws assume.
    """
    published = np.array([cell.published for cell in cells])
    means = np.array([cell.mean for cell in cells])
    deviations = np.array(
        [(cell.high - cell.low) / (2 * Z) if cell.low is not None and cell.high is not None else 0.0 for cell in cells]
    )
    rng = stream(0, "agreement", metric)
    draws = means + deviations * rng.standard_normal((RESAMPLES, len(cells)))
    low, high = np.percentile([kendall(published, draw) for draw in draws], [2.5, 97.5])
    return OrderAgreement(metric, len(cells), kendall(published, means), float(low), float(high))
