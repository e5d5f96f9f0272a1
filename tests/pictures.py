"""What a picture shows: the numbers of the figure that was saved, and whether its file shows more than one colour."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file on which something is drawn in each of its four corners' quarters."""
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    drawn = (abs(pixels - pixels[0, 0]) > 30).any(axis=2)
    halves = [half for rows in np.array_split(drawn, 2) for half in np.array_split(rows, 2, axis=1)]
    assert all(half.mean() > 0.003 for half in halves), [half.mean() for half in halves]
    return pixels.shape[1], pixels.shape[0]


@pytest.fixture
def drawn(monkeypatch):
    """A list that gets, for every figure that is saved, its panels: the points (n, 2) of their lines and of their marks."""
    from matplotlib.figure import Figure

    saved, save = [], Figure.savefig

    def savefig(figure, *words, **options):
        saved.append(
            [
                np.array([point for line in axis.lines for point in line.get_xydata()]
                         + [point for marks in axis.collections for point in marks.get_offsets()], float).reshape(-1, 2)
                for axis in figure.axes
            ]
        )  # fmt: skip
        return save(figure, *words, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return saved
