"""How far the evidence agrees with the papers: which published cells are measured, and how near, and the order of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rankbench.judge.agreement import Agreement, OrderAgreement, order_agreement
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import ORIGINS, Origin, PaperRow
from rankbench.reproduce.training import Training, training_of


@dataclass(frozen=True)
class MeasuredRow:
    """A row at the setting of one origin, with its fits by seed."""

    row: PaperRow
    origin: Origin
    fits: tuple[StoredFit, ...]

    @property
    def setting(self) -> str:
        """The origin in words: a printed optimum that lacks values is *printed in part*."""
        return "printed in part" if self.origin == "printed" and self.row.lacking else self.origin

    @property
    def metrics(self) -> list[str]:
        """The published metrics that all fits have."""
        return [name for name in self.row.published if all(name in fit.metrics for fit in self.fits)]

    @property
    def cells(self) -> tuple[Agreement, ...]:
        return tuple(_cell(name, self.row.published[name], self.fits) for name in self.metrics)

    @property
    def training(self) -> Training | None:
        training = training_of(self.row, self.fits)
        if training and self.row.arm.cause == "steps":
            return replace(training, too_few=any(cell.state == "off" for cell in self.cells))
        return training

    def mean(self, fits: Sequence[StoredFit]) -> float:
        """Return the mean of some of the fits in the first metric that the row publishes."""
        return fmean(fit.measured(self.metrics[0]).mean for fit in fits)


@dataclass(frozen=True)
class Count:
    """Numbers of published cells: all, those whose data are here, and those measured at a setting that was not found on test.

    Of the measured ones: those whose mean is within 1 % or 3 % of the published number, those that `agree` because it is within
    3 % or has the published number in its interval, those measured with one seed and with several, and of these again those
    within 1 % and 3 %. `half_widths` is the sum over the cells with an interval. `by_chance` is the number of cells that are
    expected to agree if each had the published number of another row of its table; of those with such rows, of which
    `others_agree` do. `on_test`: cells measured at a setting that was found on test, which are counted separately. `cut_short`:
    measured cells of fits that were not trained to their end.
    """

    published: int = 0
    data_here: int = 0
    measured: int = 0
    within_1: int = 0
    within_3: int = 0
    agree: int = 0
    one_seed: int = 0
    one_within_1: int = 0
    one_within_3: int = 0
    several_seeds: int = 0
    several_within_1: int = 0
    several_within_3: int = 0
    half_widths: float = 0.0
    with_interval: int = 0
    by_chance: float = 0.0
    with_others: int = 0
    others_agree: int = 0
    on_test: int = 0
    cut_short: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def measurements(row: PaperRow, evidence: Evidence) -> tuple[MeasuredRow, ...]:
    """Return the measurements of a row, one per origin that has any. Equal settings of two origins are shown once."""
    found: list[MeasuredRow] = []
    for origin in ORIGINS:
        fits = tuple(row.fits(origin, evidence))
        if fits and all(fits != each.fits for each in found):
            found.append(MeasuredRow(row, origin, fits))
    return tuple(found)


def distinct(rows: Iterable[PaperRow], evidence: Evidence) -> Iterator[MeasuredRow]:
    """Yield the measurements of rows in what they publish. Rows of several tables that share their fits count once."""
    seen = set()
    for row in rows:
        for each in measurements(row, evidence):
            key = row.dataset, *(fit.stamp for fit in each.fits)
            if each.metrics and key not in seen:
                seen.add(key)
                yield each


def tally(published: int, here: bool, cells: Iterable[Agreement] = ()) -> Count:
    """Return the count of so many published cells, of which `cells` are measured. `here`: whether their data are."""
    return sum(map(count_of, cells), Count(published=published, data_here=published * here))


def count(row: PaperRow, here: bool, evidence: Evidence, files: Sequence[PaperTable]) -> Count:
    """Count the cells of a row. `here`: whether its data are; `files`: all of its table. Cells beside a stand-in belong to
    other data and are not counted, and those of a variant are counted with the row that it is a variant of.
    """
    if row.stand_in or row.arm.variant_of is not None:
        return Count()
    total = tally(len(row.published), here)
    for measured, cell in counted_cells(row, evidence):
        short = measured.training is not None and measured.training.cut_short
        total += count_of(cell, row.others(cell.metric, files)) + Count(cut_short=short)
    return total + Count(on_test=sum(len(each.cells) for each in measurements(row, evidence) if each.origin == "as published"))


def counted_cells(row: PaperRow, evidence: Evidence) -> list[tuple[MeasuredRow, Agreement]]:
    """Return the measured cells of a row that count, each with its measurement. The paper's own setting goes before a chosen
    one, whichever is nearer.
    """
    found: dict[str, tuple[MeasuredRow, Agreement]] = {}
    for each in measurements(row, evidence):  # in the order of ORIGINS
        if each.origin != "as published":
            found = {cell.metric: (each, cell) for cell in each.cells} | found
    return [found[name] for name in row.published if name in found]


def count_of(cell: Agreement, others: Sequence[float] = ()) -> Count:
    """Return the count of a measured cell, without the published one itself. `others`: the published numbers of the same metric
    in other rows of its table.
    """
    near, nearer, one, several = cell.within(0.03), cell.within(0.01), cell.seeds == 1, cell.seeds > 1
    return Count(
        measured=1,
        within_1=nearer,
        within_3=near,
        agree=cell.state != "off",
        one_seed=one,
        one_within_1=one and nearer,
        one_within_3=one and near,
        several_seeds=several,
        several_within_1=several and nearer,
        several_within_3=several and near,
        half_widths=cell.half_width or 0.0,
        with_interval=cell.half_width is not None,
        by_chance=cell.by_chance(others) if others else 0.0,
        with_others=len(others) > 0,
        others_agree=len(others) > 0 and cell.state != "off",
    )


def _cell(name: str, published: float, fits: Sequence[StoredFit]) -> Agreement:
    values = [fit.measured(name) for fit in fits]
    bounds = [(value.low, value.high) for value in values if value.low is not None and value.high is not None]
    low, high = map(fmean, zip(*bounds, strict=True)) if len(bounds) == len(values) else (None, None)
    return Agreement(name, published, fmean(value.mean for value in values), low, high, len(fits))


def agreements(rows: Sequence[PaperRow], evidence: Evidence) -> list[OrderAgreement]:
    """Return the agreement of the order in each metric that at least three measured rows publish, not all with one number.
    Rows whose setting was found on test are left out, and so are variants of other rows, which have the same published numbers.
    """
    by_metric: dict[str, list[Agreement]] = {}
    for row in (row for row in rows if row.arm.variant_of is None):
        for each in measurements(row, evidence)[:1]:
            if each.origin != "as published":
                for cell in each.cells:
                    by_metric.setdefault(cell.metric, []).append(cell)
    # Tau is not defined if all published numbers are equal.
    ordered = {name: cells for name, cells in by_metric.items() if len({cell.published for cell in cells}) > 1}
    return [order_agreement(metric, cells) for metric, cells in ordered.items() if len(cells) >= 3]
