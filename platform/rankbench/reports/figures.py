"""The figures of a sweep: its final models, their differences, convergence, cost and searched parameters; and of a dataset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from rankbench.core.display import setting_text
from rankbench.core.palette import COLOURS
from rankbench.judge.compare import Comparison
from rankbench.judge.printing import difference, interval, number, p_text, parts
from rankbench.reports.figure import (
    GREY,
    INK,
    MARKERS,
    Figure,
    Label,
    Marks,
    Panel,
    Style,
    height,
    short,
    spans,
    styles,
)
from rankbench.reports.rows import ReportRow
from rankbench.reports.tables import Table
from rankbench.tracking.foreign_lists import METHOD
from rankbench.tracking.record import RunRecord

SHORTEST = 0.01  # seconds; shorter fits are drawn here, since a logarithmic axis has no 0
FEW = 8  # most values of a parameter that is drawn as a strip, with equal distances between its values
WIDE = 6  # panels per line of searched parameters
DECADES = 20  # smallest ratio of the largest to the smallest value for a logarithmic axis
LONG = 9  # most characters of a value that is written in full on its axis
MANY_POINTS = 40  # points of a curve from which on they have no markers


def final_figure(table: Table, metric: str) -> Figure | None:
    """Show `metric` of each model on test with its interval, and the published number if there is one, also for rows that were
    not run. One panel per dataset; None if nothing was measured or published.
    """
    panels = []
    for dataset, rows in _by_dataset(row for row in table.rows if metric in row.cells or metric in row.published):
        marks = list[Marks]()
        published = {y: row.published[metric] for y, row in enumerate(rows) if metric in row.published}
        if published:
            tips = [f"{rows[y].arm}\npublished: {value:.4f}" for y, value in published.items()]
            diamond = Style(marker="D")
            marks.append(Marks([*published.values()], [*published], diamond, tips=tips, name="published", size=8, hollow=True))
        for y, row in enumerate(rows):
            if cell := row.cells.get(metric):
                bounds = [] if cell.low is None or cell.high is None else [cell.low, cell.high]
                tip = f"{row.arm}\n{metric}: {number(cell.mean)}"
                tip += f"\n95 %: {interval(cell.low, cell.high)}" if bounds else ""
                tip += "" if cell.published is None else f"\npublished: {number(cell.published)}"
                marks += _interval(table.styles[row.arm], row.arm, y, cell.mean, bounds, f"{tip}\n{row.setting}".rstrip())
        labels = [row.arm for row in rows]
        panels.append(Panel(dataset, f"{metric} on test", marks=marks, size=(5.5, height(len(rows))), rows=labels, grid="x"))
    caption = "Each model on test with its 95 % interval, and the published number (hollow diamond) if there is one."
    return Figure("final", caption, panels, columns=len(panels)) if panels else None


def differences_figure(pairs: Sequence[Comparison], looks: dict[str, Style]) -> Figure | None:
    """Show the difference of each model from the best one with its interval, in one panel per dataset and metric: a forest
    plot. A hollow point is not distinguishable from the best; an arrow is a model far outside the panel.
    """
    panels = []
    metrics = list(dict.fromkeys(pair.metric for pair in pairs))
    for (dataset, metric), group in groupby(pairs, key=lambda pair: (pair.dataset, pair.metric)):
        own = list(group)
        edge = far(own) or 1.0
        marks, labels = list[Marks](), list[Label]()
        for y, pair in enumerate(own):
            style, tip = looks.get(pair.model, Style(GREY)), _about(pair)
            if abs(pair.difference) > edge:
                x = math.copysign(edge, pair.difference)
                arrow = Style(style.colour, (), "<" if x < 0 else ">")
                marks.append(Marks([x], [y], arrow, pair.model, [tip]))
                text = f"\u00a0\u00a0{pair.difference:+.3f}\u00a0\u00a0"
                labels.append(Label(x, y, text, "right" if x < 0 else "left", pair.model))
            else:
                hollow = not pair.distinguishable
                marks += _interval(style, pair.model, y, pair.difference, [pair.low, pair.high], tip, hollow)
        label = f"{metric} on test, difference from {short(own[0].against, 20)}"
        names, size = [pair.model for pair in own], (5.5, height(len(own)))
        panels.append(Panel(dataset, label, marks=marks, labels=labels, size=size, rows=names, zero=True, grid="x"))
    caption = "Difference of each model from the best one. Hollow: not distinguishable from it. Arrow: outside the panel."
    return Figure("differences", caption, panels, columns=len(metrics)) if panels else None


def far(pairs: Sequence[Comparison]) -> float:
    """Return the distance from the best beyond which a model is drawn as an arrow: a baseline at a tenth of the best would
    squeeze all other models together.
    """
    return 4 * median([max(-pair.low, pair.high) for pair in pairs] or [0.0])


def convergence_figure(records: Sequence[RunRecord], metric: str, looks: dict[str, Style]) -> Figure | None:
    """Show `metric` of iterative models against iterations and against training seconds, in two panels per dataset.

    If no curve has `metric`, the metric on the validation set is shown. Each run is a line and each arm a colour, so that the
    seeds of an arm can be compared. Returns None if no run has a curve.
    """
    column = next((name for name in (metric, "valid") if any(name in row for r in records for row in r.curve)), None)
    if column is None:
        return None
    runs = [record for record in records if any(column in row for row in record.curve)]
    watched = metric if column == metric else " or ".join(sorted({record.params["stop_metric"] for record in runs}))
    label = f"{watched}, {'a sample of users' if column == metric else 'on validation'}"
    looks = styles([*looks, *(run.label for run in runs)]) | looks
    order = list(looks)
    panels = []
    for dataset in dict.fromkeys(record.dataset.name for record in runs):
        own = sorted((record for record in runs if record.dataset.name == dataset), key=lambda run: order.index(run.label))
        times = [row["seconds"] for record in own for row in record.curve if column in row]
        for axis, x_label in (("iteration", "iterations"), ("seconds", "training seconds without evaluation")):
            marks = [_curve(record, axis, column, looks[record.label]) for record in own]
            log = axis == "seconds" and spans(times)
            panels.append(Panel(dataset, x_label, label, marks, size=(5.5, 3.6), log_x=log))
    caption = "Metric against iterations and against training seconds, one line per run."
    return Figure("convergence", caption, panels, columns=2, shared=True)


def pareto_figure(table: Table, metric: str) -> Figure | None:
    """Show `metric` on test against fit seconds, with the peak memory as area of a point, and the front. One panel per dataset
    with two measured models; None if there is none.
    """
    # The seconds of foreign lists are not known, or were measured elsewhere.
    measured = [row for row in table.rows if metric in row.cells and row.method != METHOD]
    groups = [(dataset, rows) for dataset, rows in _by_dataset(measured) if len(rows) > 1]
    largest = max((row.peak_memory_gb for row in measured), default=0) or 1.0
    panels = []
    for dataset, rows in groups:
        best = front(rows, metric)
        steps = [fit_seconds(row) for row in best], [row.cells[metric].mean for row in best]
        marks = [Marks(*steps, size=0, width=1, steps=True, name="front")]
        for row in rows:
            x, y = fit_seconds(row), row.cells[metric].mean
            tip = f"{row.arm}\n{metric}: {y:.4f}\nfit: {x:.2f} s, {row.peak_memory_gb:.1f} GB\n{row.setting}".rstrip()
            size, edge = _size(row.peak_memory_gb, largest), INK if row in best else ""
            marks.append(Marks([x], [y], table.styles[row.arm], row.arm, [tip], size=size, edge=edge))
        amounts = sorted({float(f"{gb:.1g}") for gb in (largest / 4, largest)})
        marks += [Marks([], [], Style(GREY), name=f"{gb:g} GB", size=_size(gb, largest)) for gb in amounts]
        labels = [Label(fit_seconds(row), row.cells[metric].mean, short(row.arm, 26), arm=row.arm) for row in rows]
        about = "seconds of the fit", f"{metric} on test"
        log = spans(map(fit_seconds, rows))
        panels.append(Panel(dataset, *about, marks, labels, (6.5, 4.8), log_x=log, margin=0.12))
    caption = "Metric against fit seconds; a larger point needs more memory. On the line: no model is both better and faster."
    return Figure("pareto", caption, panels, columns=len(panels)) if panels else None


def front(rows: Sequence[ReportRow], metric: str) -> list[ReportRow]:
    """Return the rows that no other row beats in both `metric` and fit seconds, fastest first."""
    result: list[ReportRow] = []
    for row in sorted(rows, key=lambda row: (fit_seconds(row), -row.cells[metric].mean)):
        if not result or row.cells[metric].mean > result[-1].cells[metric].mean:
            result.append(row)
    return result


def fit_seconds(row: ReportRow) -> float:
    """Return the seconds of the row's fit, all of them if other settings share it."""
    return max(row.seconds.get("fit", 0.0), SHORTEST)


def search_figure(records: Sequence[RunRecord], metric: str, looks: dict[str, Style]) -> Figure | None:
    """Show each searched parameter against `metric` on the validation set: a panel per arm and parameter, a point per setting,
    a marker per dataset, and a circle around the best.

    Names and small grids of numbers stand at equal distances, with a line through the best point of each value. Sampled numbers
    keep their distances, on a logarithmic axis if they span decades. Returns None if no arm searched anything.
    """
    order = list(looks)
    records = sorted(records, key=lambda record: order.index(record.label) if record.label in looks else len(order))
    looks = styles([*order, *(record.label for record in records)]) | looks
    datasets = list(dict.fromkeys(record.dataset.name for record in records))
    panels = [
        _searched_panel(arm, name, members, metric, looks[arm], datasets)
        for (arm, name), members in searched(records, metric).items()
    ]
    if not panels:
        return None
    if len(datasets) > 1:
        names = [Marks([], [], Style(GREY, (), _marker(place)), name=each) for place, each in enumerate(datasets)]
        panels.append(Panel("", marks=names, size=panels[0].size, small=True, legend="center"))
    caption = "Metric on validation against each searched parameter, one point per setting."
    return Figure("search", caption, panels, columns=WIDE)


def searched(records: Sequence[RunRecord], metric: str) -> dict[tuple[str, str], list[RunRecord]]:
    """Return (arm, parameter) → finished records of the arm, for parameters with more than one value among them."""
    arms: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.finished and metric in record.metrics:
            arms.setdefault(record.label, []).append(record)
    return {
        (arm, name): members
        for arm, members in arms.items()
        for name in members[0].params
        if len({str(record.params.get(name)) for record in members}) > 1
    }


def data_figure(name: str, curves: dict[str, np.ndarray]) -> Figure:
    """Show the activity of users and the popularity of items: interactions by rank, on logarithmic axes."""
    panels = []
    for what, counts in curves.items():
        counts = counts[counts > 0]
        middle = float(np.median(counts))
        marks = [
            Marks(range(1, len(counts) + 1), counts.tolist(), Style(COLOURS[0]), size=0, width=1.5),
            Marks([1], [middle], Style(COLOURS[1], (4, 2)), width=1, across=True, name=f"median {middle:g}"),
        ]
        title, labels = f"{name}: {len(counts):,} {what}s", (f"rank of the {what}", "interactions")
        panels.append(Panel(title, *labels, marks, size=(4.4, 3.4), log_x=True, log_y=True))
    return Figure("data", f"Interactions of users and items of {name}, by rank.", panels, columns=len(panels))


def _interval(
    style: Style, arm: str, y: float, mean: float, bounds: Sequence[float], tip: str, hollow: bool = False
) -> list[Marks]:
    """Return the marks of a mean in a row of a panel: its interval, if there is one, and a point."""
    line = [Marks(bounds, [y, y], style, arm, size=0, width=1.6)] if bounds else []
    return [*line, Marks([mean], [y], style, arm, [tip], hollow=hollow)]


def _curve(record: RunRecord, axis: str, column: str, style: Style) -> Marks:
    rows = [row for row in record.curve if column in row]
    tips = [
        f"{record.label}\n{row[column]:.4f} at iteration {row['iteration']}\n{row['seconds']:.2f} s, seed {record.seed}"
        for row in rows
    ]
    many = len(rows) > MANY_POINTS
    points = [row[axis] for row in rows], [row[column] for row in rows]
    return Marks(*points, style, record.label, [] if many else tips, size=0 if many else 2.4, width=1.1)


def _searched_panel(
    arm: str, name: str, records: Sequence[RunRecord], metric: str, style: Style, datasets: Sequence[str]
) -> Panel:
    values = _in_order([record.params.get(name) for record in records])
    strip = not _are_numbers(values) or (len(values) <= FEW and (len(values) < len(records) or 0 in values))
    place: Callable[[Any], float] = values.index if strip else float
    varied = [each for each in records[0].params if len({str(record.params.get(each)) for record in records}) > 1]
    marks = []
    for position, dataset in enumerate(datasets):
        own = [record for record in records if record.dataset.name == dataset]
        points = [(place(record.params.get(name)), record.metrics[metric].mean) for record in own]
        if not own:
            continue
        look = Style(style.colour, (), _marker(position))
        settings = [setting_text({each: record.params.get(each) for each in varied}) for record in own]
        tips = [f"{arm} on {dataset}\n{metric}: {y:.4f}\n{text}" for (_, y), text in zip(points, settings, strict=True)]
        if strip:
            tops = {x: max(y for other, y in points if other == x) for x, _ in points}
            marks.append(Marks(sorted(tops), [tops[x] for x in sorted(tops)], look, arm, size=0, width=0.8))
        marks.append(Marks([x for x, _ in points], [y for _, y in points], look, arm, tips, size=3.2))
        x, y = max(points, key=lambda point: point[1])
        marks.append(Marks([x], [y], Style("none"), arm, size=6.5, edge=INK))
    log = not strip and min(values) > 0 and max(values) / min(values) >= DECADES
    columns = [_short(value) for value in values] if strip else ()
    label = f"{metric}, valid"
    return Panel(arm, name, label, marks, size=(2.1, 1.5), columns=columns, log_x=log, small=True)


def _by_dataset(rows: Iterable[ReportRow]) -> list[tuple[str, list[ReportRow]]]:
    groups: dict[str, list[ReportRow]] = {}
    for row in rows:
        groups.setdefault(row.dataset, []).append(row)
    return list(groups.items())


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values in order, names by letters."""
    distinct = list(dict.fromkeys(values))
    return sorted(distinct, key=None if _are_numbers(distinct) else str)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _marker(dataset: int) -> str:
    return MARKERS[dataset % len(MARKERS)]


def _short(value: Any) -> str:
    return short(f"{value:g}".replace("e-0", "e-").replace("e+0", "e") if isinstance(value, float) else str(value), LONG)


def _size(gb: float, largest: float) -> float:
    """Return the diameter of a point, whose area grows with the memory, at most 80 points squared and at least 10."""
    return math.sqrt(max(10.0, 80.0 * gb / largest))


def _about(pair: Comparison) -> str:
    return (
        f"{pair.model}: {pair.verdict}\ndifference: {difference(pair.difference)} ({interval(pair.low, pair.high, '+.4f')})\n"
        f"p (Holm): Wilcoxon {p_text(pair.p_wilcoxon_holm)}, bootstrap {p_text(pair.p_bootstrap_holm)}\n"
        f"users better / equal / worse: {parts((pair.better, pair.equal, pair.worse))}"
    )
