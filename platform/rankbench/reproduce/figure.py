"""The figures of a paper: how far each measured cell is from the published one, by table and dataset; and for each table the
curves of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankbench.core.palette import COLOURS
from rankbench.judge.agreement import Agreement
from rankbench.judge.printing import percent
from rankbench.reports.figure import Figure, Marks, Panel, Style, spans, styles
from rankbench.reproduce.agreement import measurements
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit, TrainingCurve
from rankbench.reproduce.required_fits import ORIGINS, Origin, PaperRow

LIMIT = 0.2  # relative differences beyond it are drawn at the edge
LOOKS = {"printed": COLOURS[0], "chosen": COLOURS[2], "as published": COLOURS[1]}


def differences_figure(name: str, rows: Sequence[PaperRow], evidence: Evidence) -> Figure | None:
    """Show the relative differences of all measured cells, with their 95 % intervals; None if there is no cell."""
    cells: dict[str, list[tuple[str, Origin, Agreement]]] = {}
    for row in rows:
        for each in measurements(row, evidence):
            panel = cells.setdefault(f"{row.table.name}, {row.dataset}", [])
            panel += [(row.arm.label, each.origin, cell) for cell in each.cells]
    if not cells:
        return None
    panels = []
    for title, members in cells.items():
        labels = list(dict.fromkeys(label for label, _, _ in members))
        marks = [Marks([], [], Style(LOOKS[origin]), name=origin, size=4) for origin in ORIGINS if not panels]
        for label, origin, cell in members:
            marks += _marks(label, labels.index(label), origin, cell)
        size = 8.0, max(1.4, 0.55 + 0.17 * len(labels))
        limits = -LIMIT * 1.05, LIMIT * 1.05
        panels.append(
            Panel(title, marks=marks, size=size, rows=labels, x_limits=limits, band=(-0.03, 0.03), zero=True, percent=True,
                  dense=True, grid="")
        )  # fmt: skip
    return Figure(name, "Difference of each measured cell from the published one, in %", panels)


def _marks(label: str, y: int, origin: Origin, cell: Agreement) -> list[Marks]:
    """Return the interval of a cell and its point, an arrow if it is beyond the limits."""
    within, x = abs(cell.relative) < LIMIT, max(-LIMIT, min(LIMIT, cell.relative))
    marks = []
    if cell.low is not None and cell.high is not None and within:
        ends = [value / cell.published - 1 for value in (cell.low, cell.high)]
        marks.append(Marks(ends, [y, y], Style(LOOKS[origin]), size=0, width=0.8))
    tip = (
        f"{label}, {cell.metric}\n{cell.mean:.4g}, published {cell.published:.4g} ({percent(cell.relative, '+.1f')})\n{origin}"
    )
    marker = "o" if within else "<" if x < 0 else ">"
    return [*marks, Marks([x], [y], Style(LOOKS[origin], (), marker), tips=[tip], size=4)]


def curves_figure(name: str, rows: Sequence[PaperRow], evidence: Evidence) -> Figure | None:
    """Show the curves on test of the rows of a table and dataset over epochs and over seconds, each for its first seed, with
    the published numbers unless the data are a stand-in; None if the evidence has none.
    """
    metrics = dict.fromkeys(metric for row in rows for metric in row.published)
    drawn = [
        (row, each.origin, fit, curve)
        for row in rows
        for each in measurements(row, evidence)
        for fit in [fit for fit in each.fits if fit.curves][:1]
        for curve in fit.curves
        if curve.on == "test" and curve.metric in row.published
    ]
    metric = next((metric for metric in metrics if any(curve.metric == metric for *_, curve in drawn)), None)
    if metric is None:
        return None
    lines: dict[str, tuple[PaperRow, StoredFit, TrainingCurve]] = {}
    for row, origin, fit, curve in drawn:
        if curve.metric == metric:  # of a row that was measured at several settings, the first one, which the counts are of
            lines.setdefault(_line_name(row, origin), (row, fit, curve))
    looks, panels = styles(lines), []
    for axis, x_label in enumerate(("epochs", "training seconds without evaluation")):
        marks = []
        for label, (row, fit, curve) in lines.items():
            x, y = [point[axis] for point in curve.points], [point[2] for point in curve.points]
            published = Style(looks[label].colour, (3, 3))
            if not row.stand_in:
                marks.append(Marks(x[:1], [row.published[metric]], published, label, size=0, width=0.8, across=True))
            # The sample may be easier or harder than all users, whose number is the one to compare with the published one.
            marks.append(Marks(x[-1:], [fit.metrics[metric][0]], Style(looks[label].colour, (), "D"), label, size=5))
            marks.append(Marks(x, y, looks[label], label, size=2.4, width=1.1))  # last: the legend shows its style
        ends = [curve.points[-1][axis] for *_, curve in lines.values()]
        about = x_label, f"{metric}, a sample of test users"
        panels.append(Panel(rows[0].dataset, *about, marks, size=(4.4, 3.0), log_x=spans(ends)))
    caption = (
        f"{metric} of the rows of {rows[0].table.name} during their training, of a sample of test users. Diamond: that of "
        "all test users at the end"
    )
    if not any(row.stand_in for row in rows):
        caption += ", to be compared with the dashed line, the published number of the row"
    return Figure(name, f"{caption}.", panels, columns=2, shared=True)


def _line_name(row: PaperRow, origin: Origin) -> str:
    return row.arm.label if origin != "as published" else f"{row.arm.label}, found on test"
