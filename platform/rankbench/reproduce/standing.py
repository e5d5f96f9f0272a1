"""How far the evidence has come: for every published cell whether it is measured, and how near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.lines import StoredFit
from rankbench.reproduce.wanted import ORIGINS, Origin, Row

State = Literal["within the interval", "within 1 %", "within 3 %", "off"]


@dataclass(frozen=True)
class CellStanding:
    """A published cell with the measurement of one origin. `mean` is over the runs, `low` and `high` are the means of their
    95 % intervals over users.
    """

    metric: str
    published: float
    mean: float
    low: float | None
    high: float | None

    @property
    def relative(self) -> float:
        return (self.mean - self.published) / self.published if self.published else float("inf")

    @property
    def state(self) -> State:
        if self.low is not None and self.high is not None and self.low <= self.published <= self.high:
            return "within the interval"
        return "within 1 %" if self.within(0.01) else "within 3 %" if self.within(0.03) else "off"

    def within(self, share: float) -> bool:
        """Whether the difference is at most this share of the published number, up to rounding in the last digits."""
        return abs(self.relative) <= share + 1e-12


@dataclass(frozen=True)
class RowStanding:
    """A row at the setting of one origin, with its fits by seed."""

    row: Row
    origin: Origin
    fits: tuple[StoredFit, ...]

    @property
    def metrics(self) -> list[str]:
        """The published metrics that all fits have."""
        return [name for name in self.row.published if all(name in fit.metrics for fit in self.fits)]

    @property
    def cells(self) -> tuple[CellStanding, ...]:
        return tuple(_cell(name, self.row.published[name], self.fits) for name in self.metrics)


@dataclass(frozen=True)
class Count:
    """Numbers of published cells: all, those whose data are here, those measured at a setting that was not found on test, and
    of these those that are met within the interval, within 1 % or the interval, within 3 % or the interval. `on_test`: cells
    measured at a setting that was found on test, counted apart.
    """

    published: int = 0
    data_here: int = 0
    measured: int = 0
    in_interval: int = 0
    within_1: int = 0
    within_3: int = 0
    on_test: int = 0
    on_test_within_1: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def standings(row: Row, evidence: Evidence) -> tuple[RowStanding, ...]:
    """Return the measurements of a row, one per origin that has any. Equal settings of two origins are shown once."""
    found: list[RowStanding] = []
    for origin in ORIGINS:
        fits = tuple(row.fits(origin, evidence))
        if fits and all(fits != each.fits for each in found):
            found.append(RowStanding(row, origin, fits))
    return tuple(found)


def count(row: Row, here: bool, evidence: Evidence) -> Count:
    """Count the cells of a row. `here`: whether its data are. Cells beside a stand-in belong to other data and are not counted,
    and those of a variant are counted with the row that it is a variant of.
    """
    if row.table.stand_in(row.dataset) or row.arm.variant_of is not None:
        return Count()
    total = Count(published=len(row.published), data_here=len(row.published) * here)
    total = sum((count_of(cell) for cell in counted_cells(row, evidence)), total)
    on_test = [cell for each in standings(row, evidence) if each.origin == "as published" for cell in each.cells]
    return sum((Count(on_test=1, on_test_within_1=count_of(cell).within_1) for cell in on_test), total)


def counted_cells(row: Row, evidence: Evidence) -> list[CellStanding]:
    """Return the measured cells of a row that count. The paper's own setting goes before a chosen one, whichever is nearer."""
    measured = {each.origin: {cell.metric: cell for cell in each.cells} for each in standings(row, evidence)}
    found = (measured.get("printed", {}).get(name) or measured.get("chosen", {}).get(name) for name in row.published)
    return [cell for cell in found if cell]


def count_of(cell: CellStanding) -> Count:
    """Return the count of a measured cell, without the published one itself."""
    inside = cell.state == "within the interval"
    return Count(measured=1, in_interval=inside, within_1=inside or cell.within(0.01), within_3=inside or cell.within(0.03))


def _cell(name: str, published: float, fits: Sequence[StoredFit]) -> CellStanding:
    values = [fit.measured(name) for fit in fits]
    lows = [value.low for value in values if value.low is not None]
    highs = [value.high for value in values if value.high is not None]
    whole = len(lows) == len(values)
    return CellStanding(
        name, published, fmean(v.mean for v in values), fmean(lows) if whole else None, fmean(highs) if whole else None
    )
