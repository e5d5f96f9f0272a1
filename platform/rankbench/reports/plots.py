"""Plots of final models: their metrics, their differences and their convergence; and of a dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rankbench.evaluation.compare import Comparison
from rankbench.reports.figures import few_ticks, plain_powers, save, short, styled, subplots
from rankbench.reports.palette import COLOURS, INK, Style, styles
from rankbench.reports.tables import Table
from rankbench.tracking.record import RunRecord


@styled
def final_plot(table: Table, metric: str, path: Path) -> Path:
    """Draw one panel per dataset: `metric` of each model on test with its interval, and the published number if there is one,
    also for rows that were not run.
    """
    shown = [row for row in table.rows if metric in row.cells or metric in row.published]
    datasets = list(dict.fromkeys(row.dataset for row in shown))
    tallest = max(sum(row.dataset == dataset for row in shown) for dataset in datasets)
    size = (1 + 5 * len(datasets), 1.4 + 0.3 * tallest)
    figure, panels = subplots(1, len(datasets), size)
    for axis, dataset in zip(panels[0], datasets, strict=True):
        rows = [row for row in shown if row.dataset == dataset][::-1]
        for y, row in enumerate(rows):
            if cell := row.cells.get(metric):
                style = table.styles[row.arm]
                if cell.low is not None and cell.high is not None:
                    axis.plot([cell.low, cell.high], [y, y], "-", color=style.colour, lw=1.6, solid_capstyle="butt")
                axis.plot(cell.mean, y, style.matplotlib_marker, color=style.colour, ms=6)
        published = [(row.published[metric], y) for y, row in enumerate(rows) if metric in row.published]
        if published:
            axis.plot(*zip(*published, strict=True), "D", mfc="none", color=INK, ms=8, label="published")
        axis.set_yticks(range(len(rows)), [short(row.arm) for row in rows])
        axis.set(ylim=(-0.7, len(rows) - 0.3), xlabel=f"{metric} on test", title=dataset)
        axis.grid(axis="x")
        if published:
            axis.legend(loc="best", fontsize=8)
    figure.tight_layout()
    return save(figure, path)


@styled
def differences_plot(pairs: Sequence[Comparison], path: Path, arms: Sequence[str] = ()) -> Path:
    """Draw a forest plot with one panel per dataset and metric: the difference of each model from the best one with its
    interval. A hollow point is not distinguishable from the best; an arrow is a model far outside the panel. `arms` is the
    order of colours.
    """
    style_of = styles([*arms, *(pair.model for pair in pairs)])
    datasets = list(dict.fromkeys(pair.dataset for pair in pairs))
    metrics = list(dict.fromkeys(pair.metric for pair in pairs))
    tallest = max(sum(pair.dataset == dataset and pair.metric == metrics[0] for pair in pairs) for dataset in datasets)
    size = (1 + 5 * len(metrics), (1.4 + 0.3 * tallest) * len(datasets))
    figure, panels = subplots(len(datasets), len(metrics), size)
    for (row, dataset), (column, metric) in product(enumerate(datasets), enumerate(metrics)):
        axis = panels[row][column]
        own_pairs = [pair for pair in pairs if (pair.dataset, pair.metric) == (dataset, metric)][::-1]
        edge = far(own_pairs)
        for y, pair in enumerate(own_pairs):
            style = style_of[pair.model]
            if abs(pair.difference) > edge:
                side = math.copysign(1, pair.difference)
                axis.plot(side * edge, y, "<" if side < 0 else ">", color=style.colour)
                text = f"  {pair.difference:+.3f}  "
                axis.text(side * edge, y, text, ha="left" if side < 0 else "right", va="center", fontsize=8)
                continue
            axis.plot([pair.low, pair.high], [y, y], "-", color=style.colour, lw=1.6)
            inside = style.colour if pair.distinguishable else "white"
            axis.plot(pair.difference, y, style.matplotlib_marker, color=style.colour, mfc=inside)
        axis.axvline(0, color=INK, lw=0.8)
        axis.set_yticks(range(len(own_pairs)), [short(pair.model) for pair in own_pairs])
        axis.locator_params(axis="x", nbins=5)
        label = f"{metric} on test, difference from {short(own_pairs[0].against, 24)}" if own_pairs else metric
        axis.set(ylim=(-0.7, len(own_pairs) - 0.3), xlabel=label, title=dataset)
        axis.grid(axis="x")
    figure.tight_layout()
    return save(figure, path)


def far(pairs: Sequence[Comparison]) -> float:
    """Return the distance from the best beyond which a model is drawn as an arrow: a baseline at a tenth of the best would
    squeeze all other models together.
    """
    return 4 * median([max(-pair.low, pair.high) for pair in pairs] or [0.0])


@styled
def convergence_plot(records: Sequence[RunRecord], metric: str, path: Path, arms: Sequence[str] = ()) -> Path | None:
    """Draw `metric` of iterative models against iterations and against training seconds, in one row of panels per dataset.

    If no curve has `metric`, the metric on the validation set is drawn. Each run is a line and each arm a colour, so that the
    seeds of an arm can be compared. `arms` is the order of colours and legend; other arms follow by name. Returns None if no
    run has a curve.
    """
    followed = followed_curves(records, metric)
    if followed is None:
        return None
    column, label, runs = followed
    datasets = list(dict.fromkeys(record.dataset.name for record in runs))
    style_of = styles([*arms, *sorted(record.arm or record.method for record in records)])
    figure, panels = subplots(len(datasets), 2, (12, 3.6 * len(datasets)), sharey="row")
    lines = {}
    for (left, right), dataset in zip(panels, datasets, strict=True):
        times: list[float] = []
        for record in runs:
            if record.dataset.name == dataset:
                arm = record.arm or record.method
                points = [(row["iteration"], row["seconds"], row[column]) for row in record.curve if column in row]
                iterations, seconds, values = zip(*points, strict=True)
                look = _line(style_of[arm])
                (lines[arm],) = left.plot(iterations, values, **look)
                right.plot(seconds, values, **look)
                times += seconds
        left.set(xlabel="iterations", ylabel=label, title=dataset)
        left.xaxis.get_major_locator().set_params(integer=True)
        right.set(xlabel="training seconds without evaluation")
        few_ticks(right, times)
        for axis in (left, right):
            axis.grid()
    shown = [arm for arm in style_of if arm in lines]
    panels[0][1].legend(
        [lines[arm] for arm in shown], [*map(short, shown)],
        ncols=-(-len(shown) // 15),  # as many lines as one panel has room for
        loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8,
    )  # fmt: skip
    figure.tight_layout()
    return save(figure, path)


def followed_curves(records: Sequence[RunRecord], metric: str) -> tuple[str, str, list[RunRecord]] | None:
    """Return the column of the curves to draw, its label, and the records that have it; None if no record has a curve.

    If no curve has `metric`, it is the metric on the validation set.
    """
    column = next((name for name in (metric, "valid") if any(name in row for r in records for row in r.curve)), None)
    if column is None:
        return None
    runs = [record for record in records if any(column in row for row in record.curve)]
    watched = metric if column == metric else " or ".join(sorted({record.params["stop_metric"] for record in runs}))
    return column, f"{watched}, {'a sample of users' if column == metric else 'on validation'}", runs


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "linestyle": style.matplotlib_line, "marker": style.matplotlib_marker, "ms": 2.4, "lw": 1.1}


@styled
def data_plot(name: str, curves: dict[str, np.ndarray], path: Path) -> Path:
    """Draw the activity of users and the popularity of items: interactions by rank, on logarithmic axes."""
    figure, panels = subplots(1, len(curves), (4.4 * len(curves), 3.4))
    for axis, (what, counts) in zip(panels[0], curves.items(), strict=True):
        counts = counts[counts > 0]
        axis.loglog(np.arange(1, len(counts) + 1), counts, color=COLOURS[0])
        plain_powers(axis.xaxis, axis.yaxis)
        axis.axhline(np.median(counts), color=COLOURS[1], lw=1, ls="--", label=f"median {np.median(counts):.0f}")
        axis.set(xlabel=f"rank of the {what}", ylabel="interactions")
        axis.set_title(f"{name}: {len(counts):,} {what}s", fontsize=10)
        axis.grid(which="both")
        axis.legend(fontsize=8)
    figure.tight_layout()
    return save(figure, path)
