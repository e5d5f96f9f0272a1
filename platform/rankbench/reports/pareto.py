"""Plot the metric of each model against its fit seconds and peak memory, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from rankbench.reports.figures import few_ticks, save, styled, subplots
from rankbench.reports.palette import GREY, INK
from rankbench.reports.tables import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORTEST = 0.01  # seconds; shorter fits are drawn here, since a logarithmic axis has no 0
AROUND = [(1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)]  # sides for a label, best first
FRONT = "front: no model is both better and faster"
GAPS = (1.5, 9, 18, 30, 44)  # distances between a point and its label, nearest first


@styled
def pareto_plot(table: Table, metric: str, path: Path) -> Path | None:
    """Draw one panel per dataset: `metric` on test against fit seconds, with the peak memory as area of a point, and the front.

    Returns None if no dataset has two measured models.
    """
    measured = [row for row in table.rows if metric in row.cells]
    datasets = [name for name in dict.fromkeys(row.dataset for row in measured) if sum(r.dataset == name for r in measured) > 1]
    if not datasets:
        return None
    figure, panels = subplots(1, len(datasets), (0.6 + 6.6 * len(datasets), 5.2))
    largest = max(row.peak_memory_gb for row in measured) or 1.0
    for axis, dataset in zip(panels[0], datasets, strict=True):
        rows = [row for row in measured if row.dataset == dataset]
        points = [(fit_seconds(row), row.cells[metric].mean) for row in rows]
        sizes = [_area(row.peak_memory_gb, largest) for row in rows]
        steps = [(fit_seconds(row), row.cells[metric].mean) for row in front(rows, metric)]
        for row, point, size in zip(rows, points, sizes, strict=True):
            style, edge = table.styles[row.arm], INK if point in steps else "none"
            axis.scatter(*point, s=size, c=style.colour, marker=style.matplotlib_marker, edgecolors=edge, lw=0.9, zorder=3)
        axis.step(*zip(*steps, strict=True), where="post", color=INK, lw=1, zorder=2, label=FRONT)
        few_ticks(axis, [seconds for seconds, _ in points])
        axis.margins(0.12)
        axis.set(xlabel="seconds of the fit", ylabel=f"{metric} on test", title=dataset)
        axis.grid()
    for gb in sorted({_round(largest / 4), _round(largest)}):
        panels[0][-1].scatter([], [], s=_area(gb, largest), c=GREY, lw=0, label=f"{gb:g} GB")
    panels[0][-1].legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    for axis, dataset in zip(panels[0], datasets, strict=True):
        _label(axis, [row for row in measured if row.dataset == dataset], metric, largest)
    return save(figure, path)


def front(rows: Sequence[Row], metric: str) -> list[Row]:
    """Return the rows that no other row beats in both `metric` and fit seconds, fastest first."""
    result: list[Row] = []
    for row in sorted(rows, key=lambda row: (fit_seconds(row), -row.cells[metric].mean)):
        if not result or row.cells[metric].mean > result[-1].cells[metric].mean:
            result.append(row)
    return result


def fit_seconds(row: Row) -> float:
    """Return the seconds of the row's fit, all of them if other settings share it."""
    return max(row.seconds.get("fit", 0.0), SHORTEST)


def _label(axis: Axes, rows: Sequence[Row], metric: str, largest: float) -> None:
    """Write each name near its point where it covers no other name or point, with a thin line if that is far away."""
    from matplotlib.patheffects import withStroke

    # Lengths are measured in pixels and drawn in points: at 72 dots per inch, the two are equal.
    axis.figure.set_dpi(72)
    legend = axis.get_legend()
    centres = axis.transData.transform([(fit_seconds(row), row.cells[metric].mean) for row in rows])
    radii = [sqrt(_area(row.peak_memory_gb, largest)) / 2 for row in rows]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(centres, radii, strict=True)]
    taken += [legend.get_window_extent().extents] if legend else []
    room = axis.get_window_extent().extents
    for row, (x, y), radius in zip(rows, centres, radii, strict=True):
        text = axis.annotate(row.arm, (x, y), xycoords="figure pixels", fontsize=7.5, ha="center", va="center", zorder=4)
        size = text.get_window_extent()
        width, height = size.width / 2 + 1, size.height / 2
        positions = [
            (x + across * (radius + gap + width), y + up * (radius + gap + height)) for gap in GAPS for across, up in AROUND
        ]
        boxes = [(a - width, b - height, a + width, b + height) for a, b in positions]
        free = (i for i, box in enumerate(boxes) if _inside(box, room) and not any(_overlap(box, other) for other in taken))
        chosen = next(free, 0)
        taken.append(boxes[chosen])
        text.remove()
        offset = (positions[chosen][0] - x, positions[chosen][1] - y)
        arrow = (
            {"arrowstyle": "-", "lw": 0.4, "color": GREY, "shrinkA": 0, "shrinkB": radius} if chosen >= len(AROUND) else None
        )
        label = axis.annotate(
            row.arm, (fit_seconds(row), row.cells[metric].mean), xytext=offset, textcoords="offset points", fontsize=7.5,
            ha="center", va="center", zorder=4, arrowprops=arrow,
        )  # fmt: skip
        label.set_path_effects([withStroke(linewidth=2, foreground="white")])  # readable where it crosses the front
        label.set_in_layout(False)


def _area(gb: float, largest: float) -> float:
    """Return the area of a point in points squared, at most 80 and at least 10, so that it stays visible."""
    return max(10.0, 80.0 * gb / largest)


def _round(gb: float) -> float:
    return float(f"{gb:.1g}")


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _inside(box: Sequence[float], room: Sequence[float]) -> bool:
    return box[0] >= room[0] and box[1] >= room[1] and box[2] <= room[2] and box[3] <= room[3]
