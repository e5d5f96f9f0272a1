"""What the figures of a paper draw: differences with their intervals, and on stand-ins nothing that is published."""

import pytest

from rankbench.judge.agreement import Agreement
from rankbench.judge.convergence import TrainingCurve
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.figure import LIMIT, _marks, curves_figure, differences_figure
from rankbench.reproduce.required_fits import rows_of

from .stored import stored
from .test_training import table


def cell(mean, low=None, high=None, published=0.2):
    return Agreement("ndcg@20", published, mean, low, high)


@pytest.mark.parametrize(
    ("measured", "interval", "x", "marker"),
    [
        (cell(0.21, 0.19, 0.23), [-0.05, 0.15], 0.05, "o"),
        (cell(0.21), None, 0.05, "o"),
        (cell(0.1, 0.09, 0.11), None, -LIMIT, "<"),  # beyond the limits, where no interval can be drawn
        (cell(0.3, 0.2, 0.4), None, LIMIT, ">"),
    ],
)
def test_a_cell_is_a_point_with_its_interval_or_an_arrow_at_the_edge(measured, interval, x, marker):
    *line, point = _marks("SL", 3, "printed", measured)
    assert point.x == pytest.approx([x]) and point.y == [3] and point.style.marker == marker
    assert "published 0.2 (" in point.tips[0]
    assert bool(line) == (interval is not None)
    if line:
        assert line[0].x == pytest.approx(interval) and line[0].y == [3, 3]


@pytest.mark.parametrize("stand_in", [False, True])
def test_curves_end_at_the_value_of_all_users_and_a_stand_in_has_no_published_line(home, toy, stand_in):
    entry = {"name": "synthetic", "stand_in": "other users"} if stand_in else "synthetic"
    row = next(rows_of(toy(table(8), datasets=[entry])))
    evidence = Evidence(home.home / "evidence")
    curve = TrainingCurve("recall@20", "test", ((4, 1.5, 0.1), (8, 3.0, 0.16)))
    fit = stored(row, row.setting("chosen", evidence), {"recall@20": (0.15, 0.1, 0.2)}, iterations=8, curves=(curve,))
    evidence.add(fit)
    panels = curves_figure("curves", [row], evidence).panels
    for panel, x in zip(panels, ([4, 8], [1.5, 3.0]), strict=True):
        *published, diamond, line = panel.marks
        assert (list(line.x), list(line.y)) == (x, [0.1, 0.16])
        assert (list(diamond.x), list(diamond.y), diamond.style.marker) == (x[1:], [0.15], "D")
        assert [(mark.across, list(mark.y)) for mark in published] == ([] if stand_in else [(True, [0.2])])
    (differences,) = differences_figure("differences", [row], evidence).panels
    assert differences.rows == ["BPR"] and differences.marks[-1].x == pytest.approx([-LIMIT])  # 25 % below
