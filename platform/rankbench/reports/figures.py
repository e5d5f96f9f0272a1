"""What all drawn plots share: matplotlib without a screen, fonts, ticks, and saving. Colours are in palette.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from rankbench.core.files import atomic_file
from rankbench.reports.palette import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

A = ParamSpec("A")
R = TypeVar("R")

STYLE: dict[Any, Any] = {
    "font.size": 9.5, "axes.titlesize": 10.5, "axes.labelsize": 9.5, "axes.titleweight": "bold", "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#8a94a0", "axes.titlecolor": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "text.color": INK, "grid.color": "#c9d0d8",
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # a dollar sign in the name of a model is one
}  # fmt: skip
COLOURS = 128  # in the palette of a saved plot: more than it uses, and a third of the bytes of a full-colour file


def styled(draw: Callable[A, R]) -> Callable[A, R]:
    """Decorate `draw` so that it draws in STYLE. The settings of matplotlib, which belong to the user of a notebook, stay as
    they are.
    """

    @wraps(draw)
    def drawing(*args: A.args, **kwargs: A.kwargs) -> R:
        from matplotlib import rc_context  # imported late because the import is slow

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawing


def subplots(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, np.ndarray]:
    """Return a figure of `size` inches and its axes (rows, columns). It belongs to no window and no notebook, as those of
    pyplot do.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, path: Path, dpi: int = 130) -> Path:
    """Write `figure` atomically as a PNG file with a palette."""
    from PIL import Image

    with atomic_file(path) as scratch:
        figure.savefig(scratch, dpi=dpi)
        with Image.open(scratch) as picture:
            small = picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        small.save(scratch, format="PNG", optimize=True)
    return path


def short(name: str, most: int = 44) -> str:
    """Return a name that leaves room for the figure beside it."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def plain_powers(*axes: Axis) -> None:
    """Write the numbers of logarithmic axes as plain text, because STYLE has no formulas."""
    from matplotlib.ticker import LogFormatter, NullFormatter

    for axis in axes:
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(NullFormatter())


def few_ticks(axis: Axes, values: Sequence[float]) -> None:
    """Make the x axis logarithmic with a few plain numbers, unless `values` lie within a factor of 4."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    positive = [value for value in values if value > 0]
    if not positive or max(positive) < 4 * min(positive):
        return
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(positive) < 1000 * min(positive) else (1,)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
