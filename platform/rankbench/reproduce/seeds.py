"""How much a number depends on the seed: the deviation between the seeds of a row, beside its interval over users.

An interval over users says how much other users would change a mean, and nothing about another seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from rankbench.reproduce.agreement import MeasuredRow, distinct
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import SEEDS, PaperRow


@dataclass(frozen=True)
class Spread:
    """A setting of a row with several seeds, in the first metric that the row publishes.

    `of_seeds` is the standard deviation between the seeds, and `of_users` half the mean width of the 95 % intervals over users,
    both as a share of `mean`. `stopped_early`: validation chose the epoch, so that seeds differ in it, too.
    """

    row: PaperRow
    metric: str
    seeds: int
    mean: float
    of_seeds: float
    of_users: float
    stopped_early: bool


def spreads(rows: Iterable[PaperRow], evidence: Evidence) -> list[Spread]:
    """Return the settings with at least SEEDS seeds, the largest deviation first. Rows that share fits count once."""
    found = [spread for each in distinct(rows, evidence) if len(each.fits) >= SEEDS and (spread := _spread(each))]
    return sorted(found, key=lambda each: -each.of_seeds)


def _spread(measured: MeasuredRow) -> Spread | None:
    fits, metric = measured.fits, measured.metrics[0]
    values, mean = [fit.measured(metric) for fit in fits], measured.mean(fits)
    widths = [(value.high - value.low) / 2 for value in values if value.low is not None and value.high is not None]
    if mean <= 0 or not widths:
        return None
    of_seeds = statistics.stdev(value.mean for value in values) / mean
    stopped_early = bool(fits[0].params.get("patience"))
    return Spread(measured.row, metric, len(fits), mean, of_seeds, statistics.fmean(widths) / mean, stopped_early)
