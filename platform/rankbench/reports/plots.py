"""Pictures of final models: where they stand, how they differ, and how they got there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rankbench.evaluation.compare import Comparison
from rankbench.reports.figures import INK, PUBLISHED, few_ticks, pyplot, save
from rankbench.reports.tables import Table
from rankbench.tracking.record import RunRecord


def final_plot(table: Table, metric: str, path: Path) -> Path:
    """One panel a dataset: each model's `metric` on test with its interval, and the published number where there is one, of
    rows that were not run too.
    """
    plt = pyplot()
    shown = [row for row in table.rows if metric in row.cells or metric in row.published]
    datasets = list(dict.fromkeys(row.dataset for row in shown))
    tallest = max(sum(row.dataset == dataset for row in shown) for dataset in datasets)
    size = (1 + 5 * len(datasets), 1.4 + 0.3 * tallest)
    figure, panels = plt.subplots(1, len(datasets), figsize=size, squeeze=False)
    for axis, dataset in zip(panels[0], datasets, strict=True):
        rows = [row for row in shown if row.dataset == dataset][::-1]
        measured = [(place, row.cells[metric]) for place, row in enumerate(rows) if metric in row.cells]
        places, cells = [place for place, _ in measured], [cell for _, cell in measured]
        reach = (
            [[c.mean - c.low for c in cells], [c.high - c.mean for c in cells]]
            if all(c.low is not None for c in cells)
            else None
        )
        axis.errorbar(
            [c.mean for c in cells], places, xerr=reach, fmt="o", color=INK, capsize=3, label="measured, 95 % interval"
        )
        said = [(row.published[metric], place) for place, row in enumerate(rows) if metric in row.published]
        if said:
            axis.plot(*zip(*said, strict=True), "D", mfc="none", color=PUBLISHED, ms=8, label="published")
        axis.set_yticks(range(len(rows)), [row.arm for row in rows])
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_xlabel(f"{metric} on test")
        axis.set_title(dataset)
        axis.grid(axis="x", alpha=0.3)
    panels[0][0].legend(loc="best", fontsize=8, frameon=False)
    figure.tight_layout()
    return save(figure, path)


def differences_plot(pairs: Sequence[Comparison], path: Path) -> Path:
    """A forest plot, one panel a dataset and metric: each model less the best one with its interval; a hollow point is not
    distinguishable from it, an arrow stands for a model far beyond the others.
    """
    plt = pyplot()
    datasets = list(dict.fromkeys(pair.dataset for pair in pairs))
    metrics = list(dict.fromkeys(pair.metric for pair in pairs))
    tallest = max(sum(pair.dataset == dataset and pair.metric == metrics[0] for pair in pairs) for dataset in datasets)
    size = (1 + 5 * len(metrics), (1.4 + 0.3 * tallest) * len(datasets))
    figure, panels = plt.subplots(len(datasets), len(metrics), figsize=size, squeeze=False)
    for (row, dataset), (column, metric) in product(enumerate(datasets), enumerate(metrics)):
        axis = panels[row][column]
        mine = [pair for pair in pairs if (pair.dataset, pair.metric) == (dataset, metric)][::-1]
        # A baseline at a tenth of the best would press all that is worth a look into one line.
        edge = 4 * median([max(-pair.low, pair.high) for pair in mine] or [0.0])
        for place, pair in enumerate(mine):
            if abs(pair.difference) > edge:
                side = math.copysign(1, pair.difference)
                axis.plot(side * edge, place, "<" if side < 0 else ">", color=INK)
                text = f"  {pair.difference:+.3f}  "
                axis.text(side * edge, place, text, ha="left" if side < 0 else "right", va="center", fontsize=8)
                continue
            axis.plot([pair.low, pair.high], [place, place], "-", color=INK, lw=1.5)
            axis.plot(pair.difference, place, "o", color=INK, mfc=INK if pair.distinguishable else "white")
        axis.axvline(0, color="black", lw=0.8)
        axis.set_yticks(range(len(mine)), [pair.model for pair in mine])
        axis.locator_params(axis="x", nbins=5)
        axis.set_xlabel(f"{metric} on test, less that of {mine[0].against}" if mine else metric)
        axis.set_title(dataset)
        axis.grid(axis="x", alpha=0.3)
        axis.set_ylim(-0.7, len(mine) - 0.3)
    figure.tight_layout()
    return save(figure, path)


def convergence_plot(records: Sequence[RunRecord], metric: str, path: Path, arms: Sequence[str] = ()) -> Path | None:
    """Of models that go by iterations: `metric` against iterations, and against training seconds, a row of panels a dataset.

    Where no run was followed by `metric`, what was watched on validation is shown instead. A line a run, a colour an arm, so
    that seeds lie beside each other; `arms` states the order of colours and legend, and arms it leaves out follow by name.
    None where there is nothing to show.
    """
    column = next((name for name in (metric, "valid") if any(name in row for r in records for row in r.curve)), None)
    if column is None:
        return None
    followed = [record for record in records if any(column in row for row in record.curve)]
    plt = pyplot()
    datasets = list(dict.fromkeys(record.dataset.name for record in followed))
    styles = line_styles([*arms, *sorted(record.arm or record.method for record in records)])
    watched = metric if column == metric else " or ".join(sorted({record.params["stop_metric"] for record in followed}))
    label = f"{watched}, {'a sample of users' if column == metric else 'on validation'}"
    figure, panels = plt.subplots(len(datasets), 2, figsize=(12, 3.6 * len(datasets)), squeeze=False, sharey="row")
    lines = {}
    for (left, right), dataset in zip(panels, datasets, strict=True):
        times = []
        for record in followed:
            if record.dataset.name == dataset:
                arm = record.arm or record.method
                points = [(row["iteration"], row["seconds"], row[column]) for row in record.curve if column in row]
                iterations, seconds, values = zip(*points, strict=True)
                (lines[arm],) = left.plot(iterations, values, marker=".", ms=3, lw=1, **styles[arm])
                right.plot(seconds, values, marker=".", ms=3, lw=1, **styles[arm])
                times += seconds
        left.set_xlabel("iterations")
        left.xaxis.get_major_locator().set_params(integer=True)
        right.set_xlabel("training seconds, evaluation left out")
        few_ticks(right, times)
        left.set_ylabel(label)
        left.set_title(dataset)
        for axis in (left, right):
            axis.grid(alpha=0.3)
    shown = [arm for arm in styles if arm in lines]
    panels[0][1].legend(
        [lines[arm] for arm in shown], shown, ncols=-(-len(shown) // 15),  # what one panel is high enough for
        loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8, frameon=False,
    )  # fmt: skip
    figure.tight_layout()
    return save(figure, path)


def line_styles(arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each arm by its place among `arms`: twenty colours, the strong ones first, then again dashed."""
    tab20 = pyplot().get_cmap("tab20")
    strong_first = [*range(0, 20, 2), *range(1, 20, 2)]
    return {
        arm: {"color": tab20(strong_first[place % 20]), "linestyle": ("-", "--", ":")[place // 20 % 3]}
        for place, arm in enumerate(dict.fromkeys(arms))
    }


def data_plot(name: str, curves: dict[str, np.ndarray], path: Path) -> Path:
    """How active users and how popular items are: interactions by rank, both axes in powers of ten."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(curves), figsize=(4.4 * len(curves), 3.4), squeeze=False)
    for axis, (what, counts) in zip(panels[0], curves.items(), strict=True):
        counts = counts[counts > 0]
        axis.loglog(np.arange(1, len(counts) + 1), counts, color=INK)
        axis.axhline(np.median(counts), color=PUBLISHED, lw=1, ls="--", label=f"median {np.median(counts):.0f}")
        axis.set_xlabel(f"rank of the {what}")
        axis.set_ylabel("interactions")
        axis.set_title(f"{name}: {len(counts):,} {what}s", fontsize=10)
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return save(figure, path)
