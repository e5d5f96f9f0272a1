"""The colours of methods, the same in reports and in MLflow.

The seven colours have a contrast of at least 3 to white and to a dark page, and stay apart for readers with protanopia,
deuteranopia or tritanopia. MLflow draws every method with a solid line, so that with more methods than colours the next seven
are darker, and seven more are lighter.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

COLOURS = ("#1e5aff", "#d21e2d", "#00a578", "#c38700", "#c300c3", "#9687e1", "#786969")
SHADES = ((0.0, 0), (0.4, 0), (0.35, 255))  # the share of black (0) or white (255) that is mixed into a colour


def run_colours(arms: Iterable[str]) -> dict[str, str]:
    """Return the colour of each arm in MLflow by its position in `arms`, as reports order them."""
    return {arm: _colour(position) for position, arm in enumerate(dict.fromkeys(arms))}


def colour_of_name(method: str) -> str:
    """Return a colour that depends on the name of a method alone, for runs that belong to no sweep."""
    return _colour(crc32(method.encode()))


def _colour(position: int) -> str:
    turn, number = divmod(position % (len(COLOURS) * len(SHADES)), len(COLOURS))
    share, mixed = SHADES[turn]
    parts = bytes.fromhex(COLOURS[number][1:])
    return "#" + bytes(round(part + share * (mixed - part)) for part in parts).hex()
