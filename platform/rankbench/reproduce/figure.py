"""The figure of a paper: how far each measured cell is from the published one, by table and dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankbench.core.files import atomic_file
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.standing import CellStanding, standings
from rankbench.reproduce.wanted import ORIGINS, Origin, Row

LIMIT = 0.2  # relative differences beyond it are drawn at the edge
COLOURS: dict[Origin, str] = {"printed": "#0072b2", "chosen": "#009e73", "as published": "#d55e00"}


def draw_differences(path: Path, rows: Sequence[Row], evidence: Evidence) -> Path | None:
    """Draw the relative differences of all measured cells, with their 95 % intervals, and return `path`; None if there is no
    cell.
    """
    cells: dict[str, list[tuple[str, Origin, CellStanding]]] = {}
    for row in rows:
        for each in standings(row, evidence):
            panel = cells.setdefault(f"{row.table.name}, {row.dataset}", [])
            panel += [(row.arm.label, each.origin, cell) for cell in each.cells]
    if not cells:
        return None
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    heights = [max(1.2, 0.35 + 0.17 * len({label for label, _, _ in panel})) for panel in cells.values()]
    figure, axes = plt.subplots(len(cells), 1, figsize=(8, sum(heights) + 0.5), height_ratios=heights, squeeze=False)
    for axis, (title, panel) in zip(axes[:, 0], cells.items(), strict=True):
        labels = list(dict.fromkeys(label for label, _, _ in panel))
        axis.axvspan(-0.03, 0.03, color="0.9", zorder=0)
        axis.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        for label, origin, cell in panel:
            shown = max(-LIMIT, min(LIMIT, cell.relative))
            y = labels.index(label)
            if cell.low is not None and cell.high is not None and abs(cell.relative) < LIMIT:
                ends = [value / cell.published - 1 for value in (cell.low, cell.high)]
                axis.plot(ends, [y, y], color=COLOURS[origin], linewidth=0.8, alpha=0.5)
            marker = "o" if abs(cell.relative) < LIMIT else ("<" if shown < 0 else ">")
            axis.plot(shown, y, marker, color=COLOURS[origin], markersize=4)
        axis.set_xlim(-LIMIT * 1.05, LIMIT * 1.05)
        axis.set_yticks(range(len(labels)), labels, fontsize=7)
        axis.invert_yaxis()
        axis.xaxis.set_major_formatter(lambda value, position: f"{100 * value:+.0f} %")
        axis.tick_params(axis="x", labelsize=7)
        axis.set_title(title, fontsize=8, loc="left")
    handles = [plt.Line2D([], [], color=COLOURS[origin], marker="o", linestyle="", label=origin) for origin in ORIGINS]
    figure.legend(handles=handles, loc="upper right", fontsize=7, ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.99))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as scratch:
        figure.savefig(scratch, dpi=90, format="png")
    plt.close(figure)
    return path
