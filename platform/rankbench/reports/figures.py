"""What every picture needs: matplotlib without a screen, and a file that appears whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankbench.core.files import atomic_file

INK, PUBLISHED, GREY = "#1f4e79", "#c44e00", "#9aa5b1"
COLOURS = 128  # of a picture: more than a plot has, and a third of the bytes


def pyplot():
    """matplotlib.pyplot, drawing to files; imported late, because it is slow to."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, path: Path, dpi: int = 130) -> Path:
    """Write `figure` as it is laid out, as PNG with a palette, atomically, and let go of its memory."""
    from PIL import Image

    with atomic_file(path) as scratch:
        figure.savefig(scratch, dpi=dpi)
        with Image.open(scratch) as picture:
            small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(scratch, format="PNG", optimize=True)
    pyplot().close(figure)
    return path


def few_ticks(axis, values: Sequence[float]) -> None:
    """A logarithmic x axis with a few plain numbers; left linear where `values` lie within a factor of 4."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    above = [value for value in values if value > 0]
    if not above or max(above) < 4 * min(above):
        return
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(above) < 1000 * min(above) else (1,)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
