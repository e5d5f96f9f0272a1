"""Colours: readable on white and on the dark page, apart for colour-blind readers, and one per method in every figure."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankbench.reports import html as page
from rankbench.reports.palette import COLOURS, DASHES, MARKERS, MATPLOTLIB_MARKERS, styles
from rankbench.reports.plots import final_plot
from rankbench.reports.tables import Cell, Row, Table

# Machado, Oliveira & Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#f0e442")


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast ratio of WCAG 2."""
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def oklab(rgb):
    to_cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
    to_lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
              [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ np.clip(rgb, 0, 1))


def smallest_distance(colours, vision):
    seen = [oklab(np.array(VISION[vision]) @ linear(colour)) for colour in colours]
    return min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))


def variables(text):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", text))


def full(colour):
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])


LIGHT, DARK = (variables(part) for part in (Path(page.__file__).with_name("page.css").read_text().split("@media")[:2]))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_method_and_every_text_stands_out_from_the_ground(theme):
    theme = {name: full(colour) for name, colour in theme.items()}
    assert all(contrast(colour, theme["card"]) >= 3 for colour in COLOURS)
    pairs = [("ink", "card"), ("ink", "ground"), ("soft", "card"), ("soft", "ground"), ("accent", "card"), ("ink", "head")]
    pairs += [(name, f"{name}-ground") for name in ("good", "bad", "mid", "none")]
    assert {
        pair: contrast(*(theme[name] for name in pair)) for pair in pairs if contrast(*(theme[n] for n in pair)) < 4.5
    } == {}


@pytest.mark.parametrize("vision", VISION)
def test_no_two_colours_look_alike_to_any_reader(vision):
    # A common palette for colour-blind readers is the measure, at the distance that it keeps for each of them.
    assert smallest_distance(COLOURS, vision) >= min(smallest_distance(OKABE_ITO, each) for each in VISION)


def test_a_method_has_its_style_by_its_place_and_no_two_of_many_are_equal():
    arms = [f"arm {place}" for place in range(60)]
    found = styles([*arms, "arm 3"])
    assert list(found) == arms and len(set(found.values())) == 60
    # Where colours are few, the lines alone tell the first 35 apart.
    assert len({(found[arm].colour, found[arm].dash) for arm in arms[:35]}) == 35
    assert styles(arms[:7]) == {arm: found[arm] for arm in arms[:7]}
    assert len({*DASHES}) == 5 and {*MATPLOTLIB_MARKERS} == {*MARKERS}


def test_a_drawn_figure_keeps_the_colours(tmp_path):
    rows = [
        Row("x", f"arm {i}", "m", {}, {"ndcg@20": Cell(0.3 - 0.01 * i, 0.29 - 0.01 * i, 0.31 - 0.01 * i)}, {}, 1, 1, 1)
        for i in range(7)
    ]
    path = final_plot(Table("t", ("ndcg@20",), tuple(rows)), "ndcg@20", tmp_path / "final.png")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), int).reshape(-1, 3)
    for colour in COLOURS:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (abs(pixels - wanted).max(axis=1) <= 8).sum() > 100, colour
