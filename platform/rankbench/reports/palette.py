"""Colour, line and marker of each method, the same in every figure of a report, drawn or interactive.

The seven colours have a contrast of at least 3 to white and to the dark page, and stay apart for readers with protanopia,
deuteranopia or tritanopia. With more methods than colours, the next seven have other lines and markers; a figure also names its
methods, so that colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COLOURS = ("#1e5aff", "#d21e2d", "#00a578", "#c38700", "#c300c3", "#9687e1", "#786969")
DASHES = ((), (6, 3), (2, 2), (9, 3, 2, 3), (14, 3))
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex")
MATPLOTLIB_MARKERS = dict(zip(MARKERS, "os^Dvh", strict=True))
INK, GREY = "#3b4652", "#7b8794"  # text and signs that stand for no method


@dataclass(frozen=True)
class Style:
    """`dash`: lengths of line and gap in points, empty for a solid line. `marker`: its name in Bokeh."""

    colour: str
    dash: tuple[int, ...]
    marker: str

    @property
    def matplotlib_line(self) -> str | tuple[int, tuple[int, ...]]:
        return (0, self.dash) if self.dash else "-"

    @property
    def matplotlib_marker(self) -> str:
        return MATPLOTLIB_MARKERS[self.marker]


UNKNOWN = Style(GREY, (), "circle")  # of a row that is no arm of the experiment


def styles(arms: Iterable[str]) -> dict[str, Style]:
    """Return the style of each arm by its position in `arms`."""
    result = {}
    for position, arm in enumerate(dict.fromkeys(arms)):
        turn, colour = divmod(position, len(COLOURS))
        result[arm] = Style(COLOURS[colour], DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)])
    return result
