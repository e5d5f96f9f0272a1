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
    """Kendall's tau-b of `rows` rows in a metric; from `low` to `high` it would be in 95 % of repeated measurements."""

    metric: str
    rows: int
    tau: float
    low: float
    high: float


def agreements(rows: Sequence[Row], evidence: Evidence) -> list[Agreement]:
    """Return the agreement of the order in each metric that at least three measured rows publish, not all with one number.
    Rows whose setting was found on test are left out, and so are variants of other rows, which have the same published numbers.

    A repeated measurement is drawn from normal distributions around the measured means, as wide as their intervals. Its noise
    comes on top of that of the means, and changes the order of rows that are close to each other: repetitions agree with the
    paper less than the measurement does, and all of them may lie below its tau. This is no confidence interval. Users are the
    same for all rows, so differences between rows are less uncertain than the draws assume.
    """
    by_metric: dict[str, list[CellStanding]] = {}
    for row in (row for row in rows if row.arm.variant_of is None):
        for each in standings(row, evidence)[:1]:
            if each.origin != "as published":
                for cell in each.cells:
                    by_metric.setdefault(cell.metric, []).append(cell)
    # Tau is not defined if all published numbers are equal.
    ordered = {name: cells for name, cells in by_metric.items() if len({cell.published for cell in cells}) > 1}
    return [_agreement(metric, cells) for metric, cells in ordered.items() if len(cells) >= 3]


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
