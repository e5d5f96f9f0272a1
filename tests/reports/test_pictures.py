"""Pictures: which models no other one beats, which parameters were searched, and labels that do not cover each other."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from rankbench.reports.effects import effects_plot, searched
from rankbench.reports.figures import subplots
from rankbench.reports.pareto import SHORTEST, _label, front, pareto_plot
from rankbench.reports.tables import Cell, Row, Table
from rankbench.views.notebook import drawing

from ..pictures import size_of


def row(arm, mean, seconds, memory=1.0, dataset="x"):
    return Row(dataset, arm, "m", {}, {"ndcg@20": Cell(mean, None, None)}, {"fit": seconds}, 1, memory, 1)


def test_the_front_is_what_no_other_model_beats_in_both():
    rng = np.random.default_rng(0)
    rows = [row(str(i), mean, seconds) for i, (mean, seconds) in enumerate(rng.integers(1, 9, (40, 2)) / 10)]

    def beaten(one):
        return any(
            other.cells["ndcg@20"].mean >= one.cells["ndcg@20"].mean
            and other.seconds["fit"] <= one.seconds["fit"]
            and (other.cells["ndcg@20"].mean, other.seconds["fit"]) != (one.cells["ndcg@20"].mean, one.seconds["fit"])
            for other in rows
        )

    found = {(r.cells["ndcg@20"].mean, r.seconds["fit"]) for r in front(rows, "ndcg@20")}
    assert found == {(r.cells["ndcg@20"].mean, r.seconds["fit"]) for r in rows if not beaten(r)}


@pytest.mark.parametrize("name", ["cost $\\foo$", "$x_{$", "x_$y^$"])
def test_a_dollar_sign_in_a_name_is_one(tmp_path, name):
    rows = tuple(row(each, mean, 20 * mean, dataset=name) for each, mean in ((name, 0.2), ("other", 0.3)))
    assert pareto_plot(Table("t", ("ndcg@20",), rows), "ndcg@20", tmp_path / "pareto.png")
    assert drawing({name: [(0.0, 1.0), (1.0, 2.0)], "other": [(0.0, 1.0), (1.0, 1.5)]}, "s", "loss").count("<svg") == 1


def test_no_label_covers_another_where_there_is_room():
    figure, ((axis,),) = subplots(1, 1, (7, 5))
    rows = [row(f"model {i}", 0.3 + 0.001 * (i % 4), 10 + i % 3) for i in range(12)]
    axis.set_xlim(1, 30)
    axis.set_ylim(0.1, 0.5)
    _label(axis, rows, "ndcg@20", 1.0)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axis.texts]  # an annotation's own would take in its line
    assert len(boxes) == 12
    # Twelve points within a few pixels: at their own places the names would all lie on each other.
    assert not any(one.padded(-1).overlaps(other.padded(-1)) for one, other in itertools.combinations(boxes, 2))


def test_one_model_alone_has_no_front_and_a_fit_of_no_time_is_drawn(tmp_path, drawn):
    assert pareto_plot(Table("t", ("ndcg@20",), (row("A", 0.1, 1.0),)), "ndcg@20", tmp_path / "none.png") is None
    table = Table("t", ("ndcg@20",), (row("A", 0.1, 0.0), row("B", 0.2, 50.0, 3.0), row("B", 0.2, 50.0, dataset="y")))
    path = pareto_plot(table, "ndcg@20", tmp_path / "two.png")
    ((panel,),) = drawn  # B on y is alone there
    assert {tuple(point) for point in panel.tolist()} == {(SHORTEST, 0.1), (50.0, 0.2)}
    size_of(path)


def test_only_parameters_with_several_values_are_drawn(make_run):
    runs = [make_run("search", "A", 0.1, params={"lam": lam, "form": form, "dim": 8}) for lam, form in ((1, "a"), (2, "b"))]
    runs.append(make_run("search", "A", 0.1, params={"lam": 3, "form": "b", "dim": 9}, status="failed"))
    runs.append(make_run("search", "B", 0.1, params={"lam": 1}))
    assert list(searched(runs, "ndcg@20")) == [("A", "lam"), ("A", "form")]
    assert effects_plot(runs[-1:], "ndcg@20", None) is None


@pytest.mark.parametrize("arms", [2, 31])
def test_effects_of_many_arms_are_one_light_picture(make_run, tmp_path, arms):
    rng = np.random.default_rng(1)
    runs = [
        make_run(
            "search", f"arm {a}", float(rng.uniform(0.1, 0.3)), dataset="xy"[a % 2],
            params={"lr": float(10 ** rng.uniform(-4, -1)), "decay": [0.0, 1e-6, 1e-3][i % 3], "form": ["tanh", None][i % 2]},
        )
        for a in range(arms)
        for i in range(8)
    ]  # fmt: skip
    path = effects_plot(runs, "ndcg@20", tmp_path / "search.png", [f"arm {a}" for a in range(arms)])
    assert path.stat().st_size < 400_000
    with Image.open(path) as picture:
        wide, high = picture.size
    # Three panels an arm, six in a line.
    assert high / wide == pytest.approx(-(-3 * arms // 6) * 1.5 / (2.1 * min(6, 3 * arms) + 0.3), rel=0.02)


def test_drawing_leaves_the_settings_of_matplotlib_alone(tmp_path):
    """They belong to the user of a notebook, whose figures would disappear with another backend."""
    code = """
import matplotlib, sys
before = matplotlib.rcParams.copy()
from rankbench.reports.figures import save, styled, subplots
sizes = []
@styled
def draw():
    figure, panels = subplots(1, 2, (4, 2))
    panels[0][0].set_title("a title")
    sizes.append(panels[0][0].title.get_fontsize())
    return figure
save(draw(), __import__("pathlib").Path(sys.argv[1]))
print(dict.__eq__(matplotlib.rcParams, before), "matplotlib.pyplot" in sys.modules, sizes)
"""
    target = tmp_path / "drawn.png"
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "False", "[10.5]"] and size_of(target) == (4 * 130, 2 * 130)
