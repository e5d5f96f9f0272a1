"""Plot each searched parameter against the metric on the validation set, as small multiples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbench.reports.figures import plain_powers, save, styled, subplots
from rankbench.reports.palette import DASHES, GREY, INK, MARKERS, MATPLOTLIB_MARKERS, styles
from rankbench.tracking.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 8  # most values of a parameter that is drawn as a strip, with equal distances between its values
WIDE = 6  # panels per line
DECADES = 20  # smallest ratio of the largest to the smallest value for a logarithmic axis
LONG = 9  # most characters of a value that is written in full on its axis


@styled
def effects_plot(records: Sequence[RunRecord], metric: str, path: Path, arms: Sequence[str] = ()) -> Path | None:
    """Draw one panel per arm and searched parameter, a point per setting, a marker per dataset, and a circle around the best.

    Names and small grids of numbers are drawn at equal distances, with a line through the best point of each value. Sampled
    numbers keep their distances, on a logarithmic axis if they span decades. `arms` is the order of the panels. Returns None
    if no arm searched anything.
    """
    order = {arm: position for position, arm in enumerate(arms)}
    records = sorted(records, key=lambda record: order.get(record.arm or record.method, len(order)))
    panels = searched(records, metric)
    if not panels:
        return None
    wide = min(WIDE, len(panels))
    high = -(-len(panels) // wide)
    size = 2.1 * wide + 0.3, 1.5 * high
    figure, axes = subplots(high, wide, size)
    # Computed from inches: matplotlib's own layout would draw eighty panels twice.
    figure.subplots_adjust(0.6 / size[0], 0.45 / size[1], 1 - 0.1 / size[0], 1 - 0.2 / size[1], wspace=0.32, hspace=0.75)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    datasets = list(dict.fromkeys(record.dataset.name for record in records))
    colours = styles([*arms, *(record.arm or record.method for record in records)])
    for axis, ((arm, name), members) in zip(axes.flat, panels.items(), strict=False):
        _panel(
            axis,
            colours[arm].colour,
            [(r.params.get(name), r.metrics[metric].mean, datasets.index(r.dataset.name)) for r in members],
        )
        axis.set_title(arm if len(arm) < 30 else f"{arm[:28]}…", fontsize=8, pad=3, fontweight="normal")
        axis.set_xlabel(name, fontsize=7.5, labelpad=1)
        axis.tick_params(labelsize=6.5, length=2, pad=1.5)
        axis.locator_params(axis="y", nbins=4)
        axis.grid(lw=0.4)
    for line in axes:
        line[0].set_ylabel(f"{metric}, valid", fontsize=7)
    if len(datasets) > 1:
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], marker=_marker(position), ls="", color=GREY) for position in range(len(datasets))]
        axes.flat[-1 if len(panels) < axes.size else 0].legend(handles, datasets, fontsize=7, loc="center right")
    return save(figure, path, dpi=110)


def searched(records: Sequence[RunRecord], metric: str) -> dict[tuple[str, str], list[RunRecord]]:
    """Return (arm, parameter) → finished records of the arm, for parameters with more than one value among them."""
    arms: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.finished and metric in record.metrics:
            arms.setdefault(record.arm or record.method, []).append(record)
    return {
        (arm, name): members
        for arm, members in arms.items()
        for name in members[0].params
        if len({str(record.params.get(name)) for record in members}) > 1
    }


def is_strip(values: Sequence[Any], points: int) -> bool:
    """Whether values are drawn at equal distances: names, and small grids of numbers in which values repeat or one is 0."""
    return not _are_numbers(values) or (len(values) <= FEW and (len(values) < points or 0 in values))


def is_logarithmic(values: Sequence[Any]) -> bool:
    """Whether the axis of sampled numbers is logarithmic."""
    return min(values) > 0 and max(values) / min(values) >= DECADES


def in_order(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values in order, names by letters."""
    distinct = list(dict.fromkeys(values))
    return sorted(distinct, key=None if _are_numbers(distinct) else str)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _marker(dataset: int) -> str:
    return MATPLOTLIB_MARKERS[MARKERS[dataset % len(MARKERS)]]


def _panel(axis: Axes, colour: str, points: list[tuple[Any, float, int]]) -> None:
    """Draw points (value, metric, dataset) on one axis."""
    values = in_order([value for value, _, _ in points])
    strip = is_strip(values, len(points))
    x_of = {value: position for position, value in enumerate(values)} if strip else {value: value for value in values}
    for dataset in dict.fromkeys(dataset for _, _, dataset in points):
        own_points = [(x_of[value], mean) for value, mean, which in points if which == dataset]
        axis.plot(*zip(*own_points, strict=True), _marker(dataset), ms=3.2, alpha=0.7, mew=0, color=colour)
        if strip:
            tops = {x: max(mean for other, mean in own_points if other == x) for x, _ in own_points}
            line = (0, dash) if (dash := DASHES[dataset % len(DASHES)]) else "-"
            axis.plot(*zip(*sorted(tops.items()), strict=True), lw=0.8, color=colour, ls=line)
        axis.plot(*max(own_points, key=lambda point: point[1]), "o", ms=6.5, mfc="none", mec=INK, mew=1.1)
    if strip:
        axis.set_xticks(range(len(values)), [_short(value) for value in values])
        axis.set_xlim(-0.5, len(values) - 0.5)
        if sum(len(_short(value)) for value in values) > 22:
            axis.tick_params(axis="x", rotation=45)
    elif is_logarithmic(values):
        axis.set_xscale("log")
        plain_powers(axis.xaxis)
        axis.minorticks_off()
    else:
        axis.locator_params(axis="x", nbins=4)


def _short(value: Any) -> str:
    text = f"{value:g}".replace("e-0", "e-").replace("e+0", "e") if isinstance(value, float) else str(value)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"
