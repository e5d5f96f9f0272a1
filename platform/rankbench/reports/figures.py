"""What all plots share: matplotlib without a screen, colours, ticks, and saving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rankbench.core.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PUBLISHED, GREY = "#1f4e79", "#c44e00", "#9aa5b1"
COLOURS = 128  # in the palette of a saved plot: more than it uses, and a third of the bytes of a full-colour file


def pyplot() -> ModuleType:
    """Return matplotlib.pyplot, set to draw to files. It is imported late because the import is slow."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Figure, path: Path, dpi: int = 130) -> Path:
    """Write `figure` atomically as a PNG file with a palette, and free its memory."""
    from PIL import Image

    with atomic_file(path) as scratch:
        figure.savefig(scratch, dpi=dpi)
        with Image.open(scratch) as picture:
            small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(scratch, format="PNG", optimize=True)
    pyplot().close(figure)
    return path


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
