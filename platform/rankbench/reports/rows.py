"""The rows of a sweep's table: an arm on a dataset, with what was measured and what is published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from rankbench.core.display import setting_text
from rankbench.schema.stored_sweep import PooledMean
from rankbench.tracking.record import RunRecord


@dataclass(frozen=True)
class Cell:
    """A measured mean with its 95 % interval over users, and the published number if there is one. `std`: standard deviation
    over several runs.
    """

    mean: float
    low: float | None
    high: float | None
    published: float | None = None
    std: float | None = None

    @property
    def difference(self) -> float | None:
        """From the published number, None if there is none."""
        return None if self.published is None else self.mean - self.published


@dataclass(frozen=True)
class ReportRow:
    """One arm on one dataset. Seconds are means over its runs, as are joules if all of them have some; memory is the maximum.

    `stated`: parameters that the experiment gives or searches; all others have their defaults. `published`: metric → published
    number. `missing`: "not run", "failed" or "not available: ..." for a row without measured cells. `runs`: ids of its records.
    `command`: repeats its first run; empty if one command cannot. `seeded`: whether the seed changes the model; None if that
    is not known.
    """

    dataset: str
    arm: str
    method: str
    params: dict[str, Any]
    cells: dict[str, Cell]
    seconds: dict[str, float]
    fit_shared_by: int
    peak_memory_gb: float
    chosen_of: int
    seeds: tuple[int, ...] = ()
    split_seeds: tuple[int, ...] = ()
    stated: tuple[str, ...] = ()
    published: dict[str, float] = field(default_factory=dict)
    missing: str = ""
    runs: tuple[str, ...] = ()
    command: str = ""
    seeded: bool | None = None
    joules: float | None = None
    fit_on: tuple[str, ...] = ()

    @property
    def setting(self) -> str:
        """The stated parameters as words."""
        return setting_text({name: value for name, value in self.params.items() if name in self.stated})


def row_of(
    records: Sequence[RunRecord],
    metrics: tuple[str, ...],
    published: dict[str, float],
    chosen_of: int,
    pooled: Mapping[str, PooledMean],
    stated: Iterable[str] = (),
    command: str = "",
    seeded: bool | None = None,
) -> ReportRow:
    """Return the table row of an arm's final runs. `pooled`: metric → mean with interval, pooled over the runs."""
    first, n = records[0], len(records)
    cells = {}
    for name in (name for name in metrics if name in first.metrics):
        one = first.metrics[name]
        cells[name] = Cell(one.mean, one.low, one.high, published.get(name))
        if len(records) > 1:
            means = [record.metrics[name].mean for record in records]
            # Metrics of whole lists have no values per user to pool.
            mean, low, high = (p.mean, p.low, p.high) if (p := pooled.get(name)) else (fmean(means), None, None)
            cells[name] = Cell(mean, low, high, published.get(name), stdev(means))
    return ReportRow(
        first.dataset.name,
        first.label,
        first.method,
        {name: value for name, value in first.params.items() if value is not None},
        cells,
        {phase: fmean(record.seconds.get(phase, 0.0) for record in records) for phase in first.seconds},
        first.fit_shared_by,
        max(record.peak_memory_bytes for record in records) / 1e9,
        chosen_of,
        tuple(dict.fromkeys(record.seed for record in records)),
        tuple(dict.fromkeys(record.dataset.split_seed for record in records)),
        tuple(name for name in first.params if name in stated),
        published,
        runs=tuple(record.id for record in records),
        command=command,
        seeded=seeded,
        fit_on=tuple(dict.fromkeys(record.fit_on for record in records)),
        joules=fmean(measured) if len(measured := [each.joules for each in records if each.joules is not None]) == n else None,
    )


def missing_row(dataset: str, arm: str, method: str, published: dict[str, float], why: str) -> ReportRow:
    """Return a row without a measurement: its published numbers, and in `missing` why it was not measured."""
    return ReportRow(dataset, arm, method, {}, {}, {}, 1, 0.0, 0, published=published, missing=why)
