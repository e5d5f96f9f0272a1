"""Figures as data: what they show, against loops and stored numbers; their colours; and how they are drawn."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from rankbench.core.palette import COLOURS
from rankbench.judge.compare import compare
from rankbench.reports import html as page
from rankbench.reports.draw import _drawn, draw, svg
from rankbench.reports.figure import DASHES, Label, Marks, Panel, styles
from rankbench.reports.figures import (
    SHORTEST,
    convergence_figure,
    data_figure,
    differences_figure,
    final_figure,
    front,
    pareto_figure,
    search_figure,
)  # fmt: skip
from rankbench.reports.rows import Cell, ReportRow
from rankbench.reports.tables import Table
from rankbench.sweeps.views.notebook import drawing

from ..pictures import size_of

GOLDEN = Path(__file__).with_name("figures.json")
ARMS = ["SL", "InfoNCE", "popularity"]


def row(arm, mean, seconds, memory=1.0, dataset="x", published=None):
    cells = {"ndcg@20": Cell(mean, mean - 0.01, mean + 0.01, published)}
    paper = {"ndcg@20": published} if published else {}
    return ReportRow(dataset, arm, "m", {}, cells, {"fit": seconds}, 1, memory, 1, published=paper)


def table_of(*rows):
    return Table("t", ("ndcg@20",), rows)


def content(figure):
    """What a figure shows, as JSON values."""
    return [
        [panel.title, panel.x_label, [*panel.rows], [[m.arm or m.name, [*map(float, m.x)], [*map(float, m.y)], [*m.tips]]
                                                     for m in panel.marks]]
        for panel in figure.panels
    ]  # fmt: skip


def test_figures_show_the_stored_numbers(make_run):
    """The numbers were compared, mark by mark, with those of pictures that were drawn before figures were data."""
    table = Table(
        "t", ("ndcg@20",), tuple(row(a, 0.4 - 0.1 * i, 2 + 3 * i, 1 + i, d, 0.41) for d in "xy" for i, a in enumerate(ARMS))
    )
    users, base = np.arange(60), np.linspace(0.2, 0.6, 60)
    noise = np.where(users % 2, 0.02, -0.021)
    values = {"SL": (users, base), "InfoNCE": (users, base + noise), "popularity": (users, base - 0.19)}
    pairs = [pair for metric in ("recall@20", "ndcg@20") for pair in compare(values, dataset="x", metric=metric).pairs]
    runs = [
        make_run("final", arm, 0.4, dataset, seed=seed, curve=[
            {"iteration": k, "seconds": 0.5 * k * (1 + i), "loss": 1.0, "ndcg@20": 0.4 - 0.01 * i - 0.2 / k} for k in (1, 4)])
        for dataset in "xy" for i, arm in enumerate(ARMS[:2]) for seed in (0, 1)
    ]  # fmt: skip
    settings = [
        make_run("search", arm, 0.3 - 0.01 * k, d, params={"lr": 10.0**-k, "form": ["tanh", None][k % 2], "dim": 8})
        for d in "xy" for arm in ARMS[:2] for k in range(3)
    ]  # fmt: skip
    looks = styles(ARMS)
    made = {
        "final": final_figure(table, "ndcg@20"), "differences": differences_figure(pairs, looks),
        "convergence": convergence_figure(runs, "ndcg@20", looks), "pareto": pareto_figure(table, "ndcg@20"),
        "search": search_figure(settings, "ndcg@20", looks), "data": data_figure("x", {"user": np.array([9, 2, 1, 0])}),
    }  # fmt: skip
    stored = json.loads(GOLDEN.read_text())
    for name, figure in made.items():
        shown = json.loads(json.dumps(content(figure)))
        for panel, (*words, marks) in zip(stored[name], shown, strict=True):
            assert words == panel[:3]
            for (*about, x, y, tips), mark in zip(marks, panel[3], strict=True):
                assert [*about, tips] == [mark[0], mark[3]]
                np.testing.assert_allclose([x, y], mark[1:3], rtol=1e-12)


def test_every_figure_is_drawn_in_all_its_quarters(make_run, tmp_path):
    rows = (row(f"arm {i}", 0.3 - 0.01 * i, 10.0 * (i + 1), dataset=d, published=0.3) for d in "xy" for i in range(7))
    table = table_of(*rows)
    for made in (final_figure, pareto_figure):
        figure = made(table, "ndcg@20")
        size_of(draw(figure, tmp_path / f"{figure.name}.png"))
    with Image.open(tmp_path / "final.png") as picture:
        pixels = np.asarray(picture.convert("RGB"), int).reshape(-1, 3)
    for colour in COLOURS:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (abs(pixels - wanted).max(axis=1) <= 8).sum() > 100, colour
    for suffix, start in ((".pdf", b"%PDF"), (".svg", b"<?xml")):
        assert draw(final_figure(table, "ndcg@20"), tmp_path / f"a{suffix}").read_bytes().startswith(start)


def test_the_front_is_what_no_other_model_beats_in_both():
    rng = np.random.default_rng(0)
    rows = [row(str(i), mean, seconds) for i, (mean, seconds) in enumerate(rng.integers(1, 9, (40, 2)) / 10)]
    points = [(r.cells["ndcg@20"].mean, r.seconds["fit"]) for r in rows]
    unbeaten = {p for p in points if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in points)}
    assert {(r.cells["ndcg@20"].mean, r.seconds["fit"]) for r in front(rows, "ndcg@20")} == unbeaten


def test_one_model_alone_has_no_front_and_a_fit_of_no_time_is_drawn():
    assert pareto_figure(table_of(row("A", 0.1, 1.0)), "ndcg@20") is None
    rows = row("A", 0.1, 0.0), row("B", 0.2, 50.0, 3.0), row("B", 0.2, 50.0, dataset="y")  # B on y is alone there
    (panel,) = pareto_figure(table_of(*rows), "ndcg@20").panels
    assert {(m.x[0], m.y[0]) for m in panel.marks if m.arm} == {(SHORTEST, 0.1), (50.0, 0.2)} and panel.log_x


def test_what_was_watched_on_validation_is_shown_where_nothing_else_was(make_run):
    rows = [{"iteration": i, "seconds": 0.1 * i, "loss": 1.0} for i in range(1, 5)]
    plain = make_run("final", "A", 0.2, curve=rows)
    watched = make_run("final", "A", 0.2, params={"stop_metric": "ndcg@20"}, curve=[each | {"valid": 0.1} for each in rows])
    assert convergence_figure([plain], "ndcg@20", {}) is None
    by_iteration, by_seconds = convergence_figure([plain, watched], "ndcg@20", styles(["B", "A"])).panels
    assert by_iteration.y_label == "ndcg@20, on validation"
    for panel, step in ((by_iteration, 1), (by_seconds, 0.1)):
        (marks,) = panel.marks
        assert (marks.x, marks.y) == ([step * i for i in range(1, 5)], [0.1] * 4)


def test_no_name_covers_another_where_there_is_room():
    # Twelve points within a few pixels: at their own places the names would all lie on each other.
    points = [(i % 3 / 100, i % 4 / 100) for i in range(12)]
    labels = [Label(x, y, f"name {i}") for i, (x, y) in enumerate(points)]
    marks = Marks(*zip(*points, strict=True)), Marks([-1, 1], [-1, 1])
    drawing = _drawn([Panel("", marks=marks, labels=labels, size=(7, 5))])
    drawing.draw_without_rendering()
    boxes = [Text.get_window_extent(name) for name in drawing.axes[0].texts]  # without the lines to their points
    assert len(boxes) == 12 and not any(one.fully_overlaps(other) for one, other in itertools.combinations(boxes, 2))
    far = Panel("", marks=[Marks([0, 1], [0, 1], arm="a")], labels=[Label(0, 0, "a name", arm="a")])
    assert svg(far, 0).count('data-arm="a"') == 2 and ">a name</" in svg(far, 0)


@pytest.mark.parametrize("name", ["cost $\\foo$", "$x_{$", "</svg><script>", "a & b"])
def test_names_are_text_in_what_is_drawn(tmp_path, name):
    rows = tuple(row(each, mean, 20 * mean, dataset=name) for each, mean in ((name, 0.2), ("other", 0.3)))
    figure = pareto_figure(table_of(*rows), "ndcg@20")
    assert draw(figure, tmp_path / "pareto.png", dpi=40)
    drawn = ET.fromstring(svg(figure.panels[0], 0))
    assert {name, "other"} <= {"".join(e.itertext()) for e in drawn.iter() if e.tag.endswith("text")}
    assert drawing({name: [(0.0, 1.0), (1.0, 2.0)], "other": [(0.0, 1.0), (1.0, 1.5)]}, "s", "loss").count("<svg") == 1


@pytest.mark.filterwarnings("ignore:Glyph")
def test_signs_that_no_svg_may_contain_are_left_out():
    panel = Panel("a\x00\x1b b", "x\x08", marks=[Marks([1], [1], arm="\x0b", tips=["\x02"])])
    assert ET.fromstring(svg(panel, 0)).get("aria-label") == "a b, x"


def test_drawing_leaves_the_settings_of_matplotlib_alone(tmp_path):
    """They belong to the user of a notebook, whose figures would disappear with another backend."""
    code = """
import matplotlib, sys
before = matplotlib.rcParams.copy()
from pathlib import Path
from rankbench.reports.draw import draw
from rankbench.reports.figure import Figure, Marks, Panel
draw(Figure("a", "", [Panel("a title", marks=[Marks([1, 2], [1, 2])], size=(4, 2))]), Path(sys.argv[1]))
print(dict.__eq__(matplotlib.rcParams, before), "matplotlib.pyplot" in sys.modules)
"""
    target = tmp_path / "drawn.png"
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "False"]
    with Image.open(target) as picture:
        assert picture.size == (4 * 130, 2 * 130)


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast ratio of WCAG 2."""
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def variables(text):
    """The colours of a theme of the page, each with six digits."""
    found = re.findall(r"--([\w-]+): #([0-9a-f]{3,6})", text)
    return {name: "#" + (digits if len(digits) == 6 else "".join(2 * digit for digit in digits)) for name, digits in found}


LIGHT, DARK = (variables(part) for part in (Path(page.__file__).with_name("page.css").read_text().split("@media")[:2]))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_method_and_every_text_stands_out_from_the_ground(theme):
    assert all(contrast(colour, theme["card"]) >= 3 for colour in COLOURS)
    pairs = [("ink", "card"), ("ink", "ground"), ("soft", "card"), ("soft", "ground"), ("accent", "card"), ("ink", "head")]
    pairs += [(name, f"{name}-ground") for name in ("good", "bad", "mid", "none")]
    found = {pair: contrast(*(theme[name] for name in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


def test_a_missing_value_of_a_table_of_colours_is_readable_on_a_dark_page():
    """It has no ground of its own."""
    text = svg(Panel("", rows=["ease"], columns=["a"], shares=[[np.nan]]), 0)
    assert "currentColor" in re.search(r"<[^<]*>–", text)[0]


def test_a_method_has_its_style_by_its_place_and_no_two_of_many_are_equal():
    arms = [f"arm {place}" for place in range(60)]
    found = styles([*arms, "arm 3"])
    assert list(found) == arms and len(set(found.values())) == 60
    # Where colours are few, the lines alone tell the first 35 apart.
    assert len({(found[arm].colour, found[arm].dash) for arm in arms[:35]}) == 35
    assert styles(arms[:7]) == {arm: found[arm] for arm in arms[:7]}
    assert len({*DASHES}) == 5 and {each.marker for each in found.values()} == {*page.MARKS}


def test_effects_of_many_arms_are_one_light_picture(make_run, tmp_path):
    rng = np.random.default_rng(1)
    runs = [
        make_run("search", f"arm {a}", float(rng.uniform(0.1, 0.3)), dataset="xy"[a % 2],
                 params={"lr": float(10 ** rng.uniform(-4, -1)), "decay": [0.0, 1e-6, 1e-3][i % 3]})
        for a in range(13) for i in range(8)
    ]  # fmt: skip
    path = draw(search_figure(runs, "ndcg@20", styles(f"arm {a}" for a in range(13))), tmp_path / "search.png", dpi=60)
    wide, high = size_of(path)
    # Two panels an arm and one of names, six in a line.
    assert path.stat().st_size < 400_000 and high / wide == pytest.approx(5 * 1.5 / (6 * 2.1), rel=0.02)
