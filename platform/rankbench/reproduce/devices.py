"""Whether fits on a GPU measure what fits on processors do: rows whose seeds were fitted on both.

A GPU sums in another order and draws other negatives of some samplers, so that no seed is the same there. Means over many rows
would show a difference that is not the seed's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats

from rankbench.reproduce.agreement import distinct
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import PaperRow

FEWEST = 3  # rows that an interval needs


@dataclass(frozen=True)
class Shift:
    """How the means of `rows` on a GPU differ from those on processors, as a share of the latter: the mean over the rows with
    its 95 % interval by Student's t, and the number of rows that are lower on the GPU.
    """

    rows: int
    lower: int
    mean: float
    low: float
    high: float


def fits_on_gpu(evidence: Evidence) -> tuple[int, int]:
    """Return how many fits ran on a GPU, and how many there are."""
    fits = [*evidence.all(StoredFit)]
    return sum(map(_on_gpu, fits)), len(fits)


def gpu_shift(rows: Iterable[PaperRow], evidence: Evidence) -> Shift | None:
    """Compare rows with seeds on both, in the first metric that they publish; None for fewer than FEWEST rows. Rows that share
    fits count once.
    """
    shifts = []
    for each in distinct(rows, evidence):
        on_gpu = [fit for fit in each.fits if _on_gpu(fit)]
        others = [fit for fit in each.fits if not _on_gpu(fit)]
        if on_gpu and others and (mean := each.mean(others)):
            shifts.append(each.mean(on_gpu) / mean - 1)
    if len(shifts) < FEWEST:
        return None
    mean, error = statistics.fmean(shifts), statistics.stdev(shifts) / math.sqrt(len(shifts))
    half = float(stats.t.ppf(0.975, len(shifts) - 1)) * error
    return Shift(len(shifts), sum(each < 0 for each in shifts), mean, mean - half, mean + half)


def _on_gpu(fit: StoredFit) -> bool:
    return fit.device.startswith("cuda")
