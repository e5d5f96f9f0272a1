"""The figures of a leaderboard: values and mean ranks of the best methods, quality against time, the space of the datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankbench.leaderboard.standings import Standings
from rankbench.leaderboard.traits import performance_space
from rankbench.reports.figures import few_ticks, save, short, styled, subplots
from rankbench.reports.palette import INK, styles

SHOWN = 24  # methods of a diagram: the best ones, because the names of more cannot be read
LEAST, LIGHT = 50, 79  # percent: what is as pale as nothing, and from where on numbers are white
LINES = 7  # methods whose quality is drawn against the budget


@styled
def shares_of_best(board: Standings, path: Path) -> Path | None:
    """Draw a table of colours: the value of the best methods on each dataset, in percent of the best value there.

    Returns None if no method was run on all datasets.
    """
    if not board.methods:
        return None
    import numpy as np

    order = board.order[:SHOWN]
    shares = 100 * board.values[:, order].T / np.nanmax(board.values, axis=1)
    figure, panels = subplots(1, 1, (2.4 + 0.62 * len(board.datasets), 1.5 + 0.26 * len(order)))
    axis = panels[0][0]
    axis.imshow(shares, cmap="Blues", vmin=LEAST, vmax=100, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        text = "–" if np.isnan(share) else f"{share:.0f}"
        axis.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if share > LIGHT else INK)
    axis.set_yticks(range(len(order)), [short(board.methods[i], 24) for i in order], fontsize=8)
    axis.set_xticks(
        range(len(board.datasets)), [short(name, 24) for name in board.datasets], fontsize=8, rotation=40, ha="left"
    )
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(visible=False)
    for side in axis.spines.values():
        side.set_visible(False)
    figure.tight_layout()
    return save(figure, path)


@styled
def critical_differences(board: Standings, path: Path) -> Path | None:
    """Draw the mean ranks of the best methods on a line; a bar joins those that Nemenyi's test does not tell apart.

    Returns None for fewer than two methods or three datasets.
    """
    difference = board.critical_difference()
    order = board.order[:SHOWN]
    if difference is None or len(board.datasets) < 3:
        return None
    ranks, n = [float(board.mean_ranks[i]) for i in order], len(order)
    left = (n + 1) // 2
    # Cut off at the last method that is shown, later bars are parts of the first one that reaches it.
    bars = list(
        {min(last, n - 1): (first, min(last, n - 1)) for first, last in reversed(board.groups()) if first < n - 1}.values()
    )
    bars.sort()
    low, high = min(ranks[0], 1.0), ranks[-1]
    margin = 0.45 * max(high - low, 0.5)
    figure, panels = subplots(1, 1, (9.5, 1.2 + 0.24 * left + 0.13 * len(bars)))
    axis = panels[0][0]
    top = 0.5 * len(bars) + 0.8
    for number, (first, last) in enumerate(bars):
        axis.plot([ranks[first], ranks[last]], [0.5 * number + 0.5] * 2, color=INK, lw=3, solid_capstyle="butt")
    for place, (i, rank) in enumerate(zip(order, ranks, strict=True)):
        on_left = place < left
        y = top + (place if on_left else n - 1 - place)
        x = low - 0.1 * margin if on_left else high + 0.1 * margin
        axis.plot([rank, rank, x], [0, y, y], color=INK, lw=0.7)
        axis.text(
            x, y, f" {short(board.methods[i], 24)}  {rank:.2f} ", ha="right" if on_left else "left", va="center", fontsize=8
        )
    axis.plot([low, low + difference], [-1.1, -1.1], color=INK, lw=1.5)
    axis.text(low + difference, -1.1, f"  critical difference {difference:.2f}", va="center", fontsize=8)
    axis.set_xlim(low - margin, max(high, low + difference) + margin)
    axis.set_ylim(top + left, -1.6)
    axis.xaxis.tick_top()
    axis.spines["top"].set_visible(True)
    axis.spines["top"].set_position(("data", 0))
    for side in ("left", "bottom", "right"):
        axis.spines[side].set_visible(False)
    axis.yaxis.set_visible(False)
    axis.set_xticks([tick for tick in axis.get_xticks() if low <= tick <= high])
    figure.tight_layout()
    return save(figure, path)


@styled
def quality_by_budget(boards: Sequence[tuple[float, Standings]], metric: str, path: Path) -> Path | None:
    """Draw the share of the best value that methods reach on the mean dataset, for each budget of `boards` in seconds.

    Returns None for fewer than two budgets.
    """
    if len(boards) < 2:
        return None
    import numpy as np

    common = set.intersection(*(set(board.methods) for _, board in boards))
    datasets = set.intersection(*(set(board.datasets) for _, board in boards))
    if not common or not datasets:
        return None
    best = {name: max(float(np.nanmax(board.values[board.datasets.index(name)])) for _, board in boards) for name in datasets}

    def reached(board: Standings, method: str) -> float:
        column = board.methods.index(method)
        return float(
            np.mean([np.nan_to_num(board.values[board.datasets.index(name), column]) / best[name] for name in datasets])
        )

    last = boards[-1][1]
    chosen = [last.methods[i] for i in last.order if last.methods[i] in common][:LINES]
    figure, panels = subplots(1, 1, (7.5, 4.2))
    axis, looks = panels[0][0], styles(chosen)
    seconds = [each for each, _ in boards]
    for method in chosen:
        look = looks[method]
        values = [reached(board, method) for _, board in boards]
        axis.plot(seconds, values, color=look.colour, ls=look.matplotlib_line, marker=look.matplotlib_marker, label=method)
    few_ticks(axis, seconds)
    axis.set(xlabel="budget in seconds", ylabel=f"{metric}, share of the best")
    axis.grid()
    axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    return save(figure, path)


@styled
def space_of_datasets(board: Standings, path: Path) -> Path | None:
    """Draw the datasets as points that lie close together if the same methods do well on them, coloured by the best method.

    Returns None where `performance_space` does.
    """
    found = performance_space(board)
    if found is None:
        return None
    points, shares = found
    winners = [board.methods[int(i)] for i in board.ranks.argmin(axis=1)]
    looks = styles(sorted(set(winners), key=lambda name: (-winners.count(name), name)))
    figure, panels = subplots(1, 1, (7.5, 4.8))
    axis = panels[0][0]
    for method, look in looks.items():
        own = [i for i, winner in enumerate(winners) if winner == method]
        axis.scatter(*points[own].T, color=look.colour, marker=look.matplotlib_marker, label=f"best: {method}", zorder=3)
    for (x, y), name in zip(points, board.datasets, strict=True):
        axis.annotate(short(name, 24), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7.5)
    axis.margins(0.15)
    axis.set(xlabel=f"first direction, {100 * shares[0]:.0f} % of the variance", ylabel=f"second, {100 * shares[1]:.0f} %")
    axis.grid()
    axis.legend(fontsize=8)
    figure.tight_layout()
    return save(figure, path)
