"""Whether the rows of a table have the paper's order: Kendall's tau between published and measured numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankbench.core.rng import stream
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.standing import CellStanding, standings
from rankbench.reproduce.wanted import Row

RESAMPLES = 2000
Z = 1.959964  # half the width of a 95 % interval in standard deviations


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b of `rows` rows in a metric, with the 95 % interval that the intervals of the measured means give."""

    metric: str
    rows: int
    tau: float
    low: float
    high: float


def agreements(rows: Sequence[Row], evidence: Evidence) -> list[Agreement]:
    """Return the agreement of the order in each metric that at least three measured rows publish. Rows whose setting was found
    on test are left out, and so are variants of other rows, which have the same published numbers.

    The interval draws each measured mean from a normal distribution with the width of its own interval. Users are the same for
    all rows, so differences between rows are less uncertain than this assumes, and the interval is wide rather than narrow.
    """
    by_metric: dict[str, list[CellStanding]] = {}
    for row in (row for row in rows if row.arm.variant_of is None):
        for each in standings(row, evidence)[:1]:
            if each.origin != "as published":
                for cell in each.cells:
                    by_metric.setdefault(cell.metric, []).append(cell)
    return [_agreement(metric, cells) for metric, cells in by_metric.items() if len(cells) >= 3]


def _agreement(metric: str, cells: Sequence[CellStanding]) -> Agreement:
    from scipy.stats import kendalltau

    published = np.array([cell.published for cell in cells])
    means = np.array([cell.mean for cell in cells])
    deviations = np.array(
        [(cell.high - cell.low) / (2 * Z) if cell.low is not None and cell.high is not None else 0.0 for cell in cells]
    )
    rng = stream(0, "agreement", metric)
    draws = means + deviations * rng.standard_normal((RESAMPLES, len(cells)))
    drawn = np.array([kendalltau(published, draw).statistic for draw in draws])
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Agreement(metric, len(cells), float(kendalltau(published, means).statistic), float(low), float(high))
