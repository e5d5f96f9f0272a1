"""Published time and memory are compared as ratios to one row."""

import pytest

from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.costs import cost_cells
from rankbench.reproduce.counts import counts
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of

from .stored import stored

TABLE = """\
published: {paper: Toy, table: 2, costs_of: EASE}
arms:
  - {name: EASE, method: ease, params: {lam: 10}, costs: {synthetic: {minutes: 2, gigabytes: 60}}}
  - {name: EDLAE, method: edlae, params: {p: 0.5, lam: 10}, costs: {synthetic: {minutes: 5, gigabytes: 70}}}
not_run: [{name: Magic, why: not built, costs: {synthetic: {minutes: 1}}}]
"""


def fit(row, seconds, gigabytes, evidence, seed=0, **about):
    about = {"threads": 2, "cpu": "one", "seconds": {"fit": seconds}, "peak_memory_gb": gigabytes} | about
    evidence.add(stored(row, row.setting("printed", evidence), {}, seed, **about))


def test_a_cost_is_a_ratio_to_that_of_the_base_row(rows, tmp_path):
    evidence = Evidence(tmp_path / "evidence")
    fit(rows[0], 10.0, 2.0, evidence)
    assert cost_cells(rows[1], evidence) == []
    fit(rows[1], 25.0, 2.4, evidence, fit_shared_by=1)
    minutes, memory = cost_cells(rows[1], evidence)
    assert (minutes.metric, minutes.published, minutes.mean) == ("minutes relative to EASE", 2.5, 2.5)
    assert memory.published == pytest.approx(70 / 60) and memory.mean == pytest.approx(1.2)
    assert minutes.state == "within 1 %" and memory.state == "within 3 %"
    assert cost_cells(rows[0], evidence) == []


def test_a_cost_that_the_base_row_lacks_is_not_compared(toy, tmp_path):
    rows = list(rows_of(toy(TABLE.replace("{minutes: 2, gigabytes: 60}", "{minutes: 2}"))))
    evidence = Evidence(tmp_path / "evidence")
    fit(rows[0], 10.0, 2.0, evidence)
    fit(rows[1], 25.0, 2.4, evidence)
    assert [cell.metric for cell in cost_cells(rows[1], evidence)] == ["minutes relative to EASE"]


@pytest.mark.parametrize("other", [{"cpu": "another"}, {"threads": 1}, {"device": "cuda:0"}, {"idle": True}])
def test_only_fits_that_were_made_in_the_same_way_are_compared(rows, tmp_path, other):
    evidence = Evidence(tmp_path / "evidence")
    fit(rows[0], 10.0, 2.0, evidence)
    fit(rows[1], 25.0, 2.4, evidence)
    fit(rows[1], 900.0, 9.0, evidence, seed=1, started_at="2026-11-25T11:00:00+00:00", **other)
    minutes, memory = cost_cells(rows[1], evidence)
    assert (minutes.mean, memory.mean) == (2.5, pytest.approx(1.2))
    # The counterpart is made in the same way, and last.
    fit(rows[0], 100.0, 3.0, evidence, seed=1, started_at="2026-11-25T12:00:00+00:00", **other)
    minutes, memory = cost_cells(rows[1], evidence)
    assert (minutes.mean, memory.mean) == (9.0, pytest.approx(3.0))


def test_costs_are_counted(home, rows, tmp_path):
    evidence = Evidence(tmp_path / "evidence")
    fit(rows[0], 10.0, 2.0, evidence)
    fit(rows[1], 25.0, 2.4, evidence)
    found = counts(paper_tables(home), {"toy/2"}, evidence, home)["toy/2"]
    assert (found.published, found.data_here, found.measured, found.within_3) == (5, 5, 2, 2)


def test_costs_of_a_stand_in_are_shown_as_those_of_other_data_on_the_page_of_a_table_without_other_numbers(home, toy, tmp_path):
    rows = list(rows_of(toy(TABLE, datasets=[{"name": "synthetic", "stand_in": "other users"}])))
    evidence = Evidence(tmp_path / "evidence")
    fit(rows[0], 10.0, 2.0, evidence)
    fit(rows[1], 25.0, 2.4, evidence)
    write_pages(tmp_path, [rows[0].table], evidence, home)
    page = (tmp_path / "toy.md").read_text()
    assert "A stand-in, so that only the order can be compared: other users" in page
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["row", "cost", "measured", "published, other data"] in lines
    assert ["EDLAE", "minutes relative to EASE", "2.50", "2.50"] in lines
