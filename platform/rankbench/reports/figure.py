"""Figures as data: what a figure shows, before `draw.py` draws it into a page or a file.

A figure has panels, and a panel has marks: points, lines or intervals of one method. With more methods than colours, the next
seven have other lines and markers; a figure also names its methods: colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rankbench.core.palette import COLOURS

DASHES = ((), (6, 3), (2, 2), (9, 3, 2, 3), (14, 3))
MARKERS = ("o", "s", "^", "D", "v", "h")  # as matplotlib names them
INK, GREY = "#3b4652", "#7b8794"  # text and signs that stand for no method


@dataclass(frozen=True)
class Style:
    """`dash`: lengths of line and gap in points, empty for a solid line."""

    colour: str = INK
    dash: tuple[int, ...] = ()
    marker: str = "o"


def styles(arms: Iterable[str]) -> dict[str, Style]:
    """Return the style of each arm by its position in `arms`, the same in every figure of a page."""
    result = {}
    for position, arm in enumerate(dict.fromkeys(arms)):
        turn, colour = divmod(position, len(COLOURS))
        result[arm] = Style(COLOURS[colour], DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)])
    return result


@dataclass(frozen=True)
class Marks:
    """Marks at `x` and `y` (n,): a marker of `size` points at each, and a line of `width` points through them; neither if 0.

    `arm`: the method that they belong to. `tips`: what each marker says under the mouse. `name`: in the legend of the panel.
    `steps`: the line keeps the height of a point until the next one. `across`: a horizontal line at y over the whole panel.
    """

    x: Sequence[float]
    y: Sequence[float]
    style: Style = Style()
    arm: str = ""
    tips: Sequence[str] = ()
    name: str = ""
    size: float = 6
    width: float = 0
    hollow: bool = False
    steps: bool = False
    across: bool = False
    edge: str = ""  # colour around a marker, if not its own


@dataclass(frozen=True)
class Label:
    """A text at a point: to its `left` or `right`, or, if `side` is empty, where it covers the least, as the name of a point.
    `arm`: the method that it belongs to.
    """

    x: float
    y: float
    text: str
    side: Literal["left", "right", ""] = ""
    arm: str = ""


@dataclass(frozen=True)
class Panel:
    """One diagram of `size` inches. `rows` and `columns`: names at the whole numbers of an axis, the first row at the top.

    `zero`: a vertical line at 0. `band`: a grey area between two x. `shares` (n_rows, n_columns): a table of colours, in
    percent. `percent`: x is a share. `dense`: rows close together. `small`: one of many, with little text. `legend`: its place
    inside of the panel; empty: above it.
    """

    title: str
    x_label: str = ""
    y_label: str = ""
    marks: Sequence[Marks] = ()
    labels: Sequence[Label] = ()
    size: tuple[float, float] = (5.0, 3.6)
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    log_x: bool = False
    log_y: bool = False
    x_limits: tuple[float, float] | None = None
    margin: float = 0.05
    zero: bool = False
    band: tuple[float, float] | None = None
    shares: Sequence[Sequence[float]] | None = None
    percent: bool = False
    dense: bool = False
    small: bool = False
    grid: Literal["both", "x", ""] = "both"
    legend: str = ""


@dataclass(frozen=True)
class Figure:
    """A block of a page. `name`: of its file, without the suffix. `columns`: panels in a line of the file.

    `shared`: a file needs a legend of the methods beside its panels; a page has one for all of its figures.
    """

    kind: ClassVar = "figure"
    name: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 1
    shared: bool = False


def spans(values: Iterable[float]) -> bool:
    """Whether positive values span so much that an axis is logarithmic."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 4 * min(positive)


def height(rows: int) -> float:
    """Return the inches of a panel with so many named rows."""
    return 1.4 + 0.3 * rows


def short(name: str, most: int = 44) -> str:
    """Return a name that leaves room for the figure beside it."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
