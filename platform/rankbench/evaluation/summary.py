"""Means over users with bootstrap confidence intervals, for runs, searches and reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from rankbench.core.compiler import numba
from rankbench.core.rng import stream
from rankbench.core.thread_pool import in_order, slices
from rankbench.evaluation.metrics import PerUser

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over users with its percentile bootstrap interval. Metrics of whole lists have no interval."""

    mean: float
    low: float | None = None
    high: float | None = None


def summarise(per_user: PerUser, seed: int, resamples: int = RESAMPLES) -> dict[str, Interval]:
    """Return name → mean with 95 % interval. Users are drawn with replacement `resamples` times, the same for every metric.

    Equal `seed` and number of users give equal draws, so that intervals of two methods are based on the same users. Metrics
    with weights are ratios of two means of the same draws.
    """
    names, weighted = list(per_user.values), list(per_user.weights)
    columns = [*per_user.values.values(), *per_user.weights.values()]
    table = np.column_stack(columns) if columns else np.empty((len(per_user.users), 0))
    means = table[:, : len(names)].mean(axis=0)
    draws = bootstrap_means(table, seed, resamples)
    for position, name in enumerate(weighted, start=len(names)):
        # A resample without any user of a group says nothing about it.
        with np.errstate(invalid="ignore"):
            draws[:, names.index(name)] /= draws[:, position]
    low, high = percentile_bounds(draws[:, : len(names)])
    result = {name: Interval(float(m), float(a), float(b)) for name, m, a, b in zip(names, means, low, high, strict=True)}
    return result | {name: Interval(float(value)) for name, value in per_user.overall.items()}


def percentile_bounds(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the middle 95 % of draws (resamples, n_columns), column by column, without those that are NaN."""
    if not draws.shape[1]:  # metrics of whole lists alone
        return np.empty(0), np.empty(0)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(draws, [tail, 100 - tail], axis=0)
    return low, high


def bootstrap_means(
    table: np.ndarray, seed: int, resamples: int, threads: int = 1, on_progress: Callable[[float], None] = lambda share: None
) -> np.ndarray:
    """Return column means (resamples, n_columns) of table (m, n_columns), with rows drawn anew for each resample.

    A resample is a vector of how often each row is drawn, so that all means of a batch are one matrix product. Equal `seed`
    and m give equal draws. A product is computed in one thread, because BLAS rounds differently for other numbers of threads;
    several `threads` compute one batch each. `on_progress` is called with the share that is done.
    """
    m = len(table)
    rng = stream(seed, "bootstrap", m)
    draws = np.empty((resamples, table.shape[1]))
    batch = max(1, min(resamples, (1 << 22) // m))
    parts = slices(0, resamples, batch)
    picked = ((part, rng.integers(0, m, (part.stop - part.start, m), dtype=np.int32)) for part in parts)

    def work(given: tuple[slice, np.ndarray]) -> int:
        part, picks = given
        counts = np.zeros(picks.shape)
        _count(picks, counts)
        draws[part] = counts @ table / m
        return part.stop

    with threadpool_limits(1, "blas"):
        for done in in_order(work, picked, threads):
            on_progress(done / resamples)
    return draws


@numba.njit(cache=True, nogil=True)
def _count(picks: np.ndarray, counts: np.ndarray) -> None:
    """Add to counts[r, i] how often picks[r] contains i."""
    for row in range(picks.shape[0]):
        for pick in picks[row]:
            counts[row, pick] += 1.0
