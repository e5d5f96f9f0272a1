"""The figures of a leaderboard: values and mean ranks of the best methods, quality against time, the space of the datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankbench.judge.ranking import MethodRanking, performance_space
from rankbench.reports.figure import Figure, Label, Marks, Panel, short, spans, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 24  # methods of a diagram: the best ones, because the names of more cannot be read
LINES = 7  # methods whose quality is drawn against the budget


def shares_of_best(board: MethodRanking, metric: str, name: str) -> Figure | None:
    """Show the value of the best methods on each dataset, in percent of the best value there, as a table of colours.

    Returns None if no method was run on all datasets.
    """
    if not board.methods:
        return None
    order = board.order[:SHOWN]
    shares = 100 * board.values[:, order].T / np.nanmax(board.values, axis=1)
    names = [short(board.methods[i], 24) for i in order]
    size = 2.4 + 0.62 * len(board.datasets), 1.5 + 0.26 * len(order)
    datasets = [short(each, 24) for each in board.datasets]
    panel = Panel("", size=size, rows=names, columns=datasets, shares=shares.tolist(), grid="", finish=_as_a_table)
    return Figure(name, f"{metric} in percent of the best value of each dataset; –: no result.", [panel])


def critical_differences(board: MethodRanking, name: str) -> Figure | None:
    """Show the mean ranks of the best methods on a line; a bar joins those that Nemenyi's test does not tell apart.

    Returns None for fewer than two methods or three datasets.
    """
    difference = board.critical_difference()
    order = board.order[:SHOWN]
    if difference is None or len(board.datasets) < 3:
        return None
    ranks, n = [float(board.mean_ranks[i]) for i in order], len(order)
    left = (n + 1) // 2
    # Cut off at the last method that is shown, later bars are parts of the first one that reaches it.
    groups = reversed(board.groups())
    bars = sorted({min(last, n - 1): (first, min(last, n - 1)) for first, last in groups if first < n - 1}.values())
    low, high = min(ranks[0], 1.0), ranks[-1]
    margin, top = 0.45 * max(high - low, 0.5), 0.5 * len(bars) + 0.8
    marks = [
        Marks([ranks[first], ranks[last]], [0.5 * number + 0.5] * 2, size=0, width=3)
        for number, (first, last) in enumerate(bars)
    ]
    labels = [Label(low + difference, -1.1, f"\u00a0critical difference {difference:.2f}", "right")]
    for place, (i, rank) in enumerate(zip(order, ranks, strict=True)):
        on_left = place < left
        x, y = (low - 0.1 * margin, top + place) if on_left else (high + 0.1 * margin, top + n - 1 - place)
        marks.append(Marks([rank, rank, x], [0, y, y], size=0, width=0.7))
        text = f"\u00a0{short(board.methods[i], 24)}\u00a0\u00a0{rank:.2f}\u00a0"
        labels.append(Label(x, y, text, "left" if on_left else "right"))
    marks.append(Marks([low, low + difference], [-1.1, -1.1], size=0, width=1.5))

    def as_a_scale(axis: Axes) -> None:
        axis.set_ylim(top + left, -1.6)
        axis.xaxis.tick_top()
        axis.spines["top"].set_visible(True)
        axis.spines["top"].set_position(("data", 0))
        for side in ("left", "bottom", "right"):
            axis.spines[side].set_visible(False)
        axis.yaxis.set_visible(False)
        axis.set_xticks([tick for tick in axis.get_xticks() if low <= tick <= high])

    size, limits = (9.5, 1.2 + 0.24 * left + 0.13 * len(bars)), (low - margin, max(high, low + difference) + margin)
    panel = Panel("", marks=marks, labels=labels, size=size, x_limits=limits, grid="", finish=as_a_scale)
    caption = "Mean ranks of the best methods. A bar joins methods that Nemenyi's test does not tell apart at 5 %."
    return Figure(name, caption, [panel])


def quality_by_budget(boards: Sequence[tuple[float, MethodRanking]], metric: str, name: str) -> Figure | None:
    """Show the share of the best value that methods reach on the mean dataset, for each budget of `boards` in seconds.

    Returns None for fewer than two budgets.
    """
    common = set.intersection(*(set(board.methods) for _, board in boards))
    datasets = set.intersection(*(set(board.datasets) for _, board in boards))
    if len(boards) < 2 or not common or not datasets:
        return None
    best = {each: max(float(np.nanmax(board.values[board.datasets.index(each)])) for _, board in boards) for each in datasets}

    def reached(board: MethodRanking, method: str) -> float:
        values = board.values[:, board.methods.index(method)]
        return float(np.mean([np.nan_to_num(values[board.datasets.index(each)]) / best[each] for each in datasets]))

    last, seconds = boards[-1][1], [each for each, _ in boards]
    chosen = [last.methods[i] for i in last.order if last.methods[i] in common][:LINES]
    marks = []
    for method, style in styles(chosen).items():
        values = [reached(board, method) for _, board in boards]
        tips = [f"{method}\n{each:.0f} s: {100 * value:.1f} %" for each, value in zip(seconds, values, strict=True)]
        marks.append(Marks(seconds, values, style, tips=tips, name=method, width=1.5))
    about = "budget in seconds", f"{metric}, share of the best"
    panel = Panel("", *about, marks, size=(7.5, 4.2), log_x=spans(seconds), legend="lower right")
    return Figure(name, "What the best methods reach with more time.", [panel])


def space_of_datasets(board: MethodRanking, name: str) -> Figure | None:
    """Show the datasets as points that lie close together if the same methods do well on them, coloured by the best method.

    Returns None where `performance_space` does.
    """
    found = performance_space(board)
    if found is None:
        return None
    points, shares = found
    winners = [board.methods[int(i)] for i in board.ranks.argmin(axis=1)]
    marks = []
    for method, style in styles(sorted(set(winners), key=lambda each: (-winners.count(each), each))).items():
        own = [i for i, winner in enumerate(winners) if winner == method]
        tips = [f"{board.datasets[i]}\nbest: {method}" for i in own]
        marks.append(Marks(*points[own].T.tolist(), style, tips=tips, name=f"best: {method}"))
    labels = [Label(x, y, short(each, 24)) for (x, y), each in zip(points.tolist(), board.datasets, strict=True)]
    about = f"first direction, {100 * shares[0]:.0f} % of the variance", f"second, {100 * shares[1]:.0f} %"
    panel = Panel("", *about, marks, labels, (7.5, 4.8), margin=0.15, legend="best")
    return Figure(name, "Datasets on which the same methods do well lie close together.", [panel])


def _as_a_table(axis: Axes) -> None:
    """Put the names of the columns above a table of colours, and leave out the lines around it."""
    axis.xaxis.tick_top()
    axis.tick_params(length=0, labelsize=8)
    for label in axis.get_xticklabels():
        label.set(rotation=40, ha="left")
    for side in axis.spines.values():
        side.set_visible(False)
