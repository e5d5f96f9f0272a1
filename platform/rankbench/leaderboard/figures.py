"""The figures of a leaderboard: values and mean ranks of the best methods, and quality against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rankbench.judge.over_datasets import Spread
from rankbench.judge.printing import counted
from rankbench.judge.ranking import MethodRanking
from rankbench.reports.figure import GREY, Figure, Marks, Panel, Style, short, spans, styles

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
    size = 2.4 + 0.38 * len(board.datasets), 1.5 + 0.26 * len(order)
    datasets = [short(each, 24) for each in board.datasets]
    panel = Panel("", size=size, rows=names, columns=datasets, shares=shares.tolist(), grid="")
    return Figure(name, f"{metric} in percent of the best value of each dataset; –: no result.", [panel])


def mean_ranks(spread: Mapping[str, Spread], name: str) -> Figure | None:
    """Show the mean ranks of the best methods with their intervals over datasets. Returns None where there are no intervals."""
    shown = sorted(spread, key=lambda each: (spread[each].mean_rank.mean, each))[:SHOWN]
    marks = []
    for place, method in enumerate(shown):
        rank = spread[method].mean_rank
        if rank.low is None or rank.high is None:
            return None
        tip = f"{method}\n{rank.mean:.2f} ({rank.low:.2f} – {rank.high:.2f})"
        marks += [Marks([rank.low, rank.high], [place] * 2, size=0, width=2), Marks([rank.mean], [place], tips=[tip])]
    names, size = [short(each, 24) for each in shown], (7.5, 0.8 + 0.24 * len(shown))
    panel = Panel("", "mean rank", marks=marks, size=size, rows=names, grid="x", dense=True)
    caption = "Mean ranks of the best methods, with 95 % intervals by the bootstrap over sources of datasets."
    return Figure(name, caption, [panel]) if marks else None


def quality_by_budget(
    of: MethodRanking, boards: Sequence[tuple[float, MethodRanking]], metric: str, name: str
) -> Figure | None:
    """Show the share of the best value that the methods of a ranking reach on its mean dataset, for each budget of `boards` in
    seconds that all of its datasets have.

    Returns None for fewer than two such budgets.
    """
    boards = [(seconds, board) for seconds, board in boards if {*of.datasets} <= {*board.datasets}]
    common = {*of.methods}.intersection(*(board.methods for _, board in boards))
    if len(boards) < 2 or not common or not of.datasets:
        return None
    every = of.datasets
    best = np.max([np.nanmax(board.part(every, board.methods).values, axis=1) for _, board in boards], axis=0)

    def reached(board: MethodRanking, method: str) -> float:
        part = board.part(every, [method])
        return float(part.by_source(np.nan_to_num(part.values) / best[:, None]).mean())

    seconds = [each for each, _ in boards]
    chosen = [of.methods[i] for i in of.order if of.methods[i] in common][:LINES]
    marks = []
    for method, style in styles(chosen).items():
        values = [reached(board, method) for _, board in boards]
        tips = [f"{method}\n{each:.0f} s: {100 * value:.1f} %" for each, value in zip(seconds, values, strict=True)]
        marks.append(Marks(seconds, values, style, tips=tips, name=method, width=1.5))
    about = "budget in seconds", f"{metric}, share of the best"
    panel = Panel("", *about, marks, size=(7.5, 4.2), log_x=spans(seconds), legend="lower right")
    return Figure(name, f"What the best methods reach with more time, on {counted(len(every), 'dataset')}.", [panel])


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], about: str, caption: str, name: str) -> Figure | None:
    """Show the best value on the validation set over the seconds of races, whose points `lines` has by their names. Of more
    than LINES, all look alike, and the end of each says its name under the mouse. Returns None without points.
    """
    lines = {each: points for each, points in lines.items() if points}
    if not lines:
        return None
    style = styles(lines) if len(lines) <= LINES else dict.fromkeys(lines, Style(GREY))
    marks = []
    for each, points in lines.items():
        seconds, values = zip(*points, strict=True)
        legend = each if len(lines) <= LINES else ""
        marks.append(Marks(seconds, values, style[each], name=legend, size=0, width=1.5, steps=True))
        tips = [f"{each}\n{seconds[-1]:.4g} s: {values[-1]:.4f}"]
        marks.append(Marks(seconds[-1:], values[-1:], style[each], tips=tips, size=4))
    spread = spans(each for points in lines.values() for each, _ in points)
    return Figure(name, caption, [Panel("", "seconds", about, marks, size=(7.5, 4.2), log_x=spread, legend="lower right")])
