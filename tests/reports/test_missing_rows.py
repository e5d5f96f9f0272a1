"""Rows without a measurement are shown and not dropped; the best and the second best are marked among the others."""

import csv
import io
import json
from dataclasses import replace

import pytest
from stored import typed

from rankbench.reports.formats import render
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.tables import Cell, Row, Table

OTHERS = [
    {"name": "Graph net", "why": "a network of its own, not built here", "published": {"x": {"ndcg@20": 0.9}}},
    {"name": "Elsewhere", "why": "another dataset alone", "published": {"z": {"ndcg@20": 0.8}}},
]


@pytest.fixture
def sweep(make_run, make_sweep):
    """Of four arms two are measured, one failed and one was never run; a fifth row's system is not built."""
    failed = make_run("final", "C", 0.1, status="failed", error="no memory", metrics={})
    runs = [make_run("final", "A", 0.3), make_run("final", "B", 0.2), failed]
    published = {"A": {"x": {"ndcg@20": 0.31}}, "B": {}, "C": {"x": {"ndcg@20": 0.5}}, "D": {"x": {"ndcg@20": 0.4}}}
    return make_sweep(runs, published, not_run=OTHERS)


def test_rows_stand_in_the_order_of_the_file_and_then_of_the_systems_that_are_not_built(sweep):
    rows = sweep_table(*typed(*sweep)).rows
    assert [(row.arm, row.missing) for row in rows] == [
        ("A", ""), ("B", ""), ("C", "failed"), ("D", "not run"), ("Graph net", "not run"),
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["md", "latex"])
def test_a_row_that_was_not_run_has_its_published_number_in_every_format(sweep, format):
    lines = render(sweep_table(*typed(*sweep)), format).splitlines()
    for arm, state, number in (("C", "failed", "0.5000"), ("D", "not run", "0.4000"), ("Graph net", "not run", "0.9000")):
        (line,) = [line for line in lines if line.lstrip("| ").startswith(arm)]
        assert state in line and number in line


def test_csv_and_json_have_no_number_where_nothing_was_measured(sweep):
    table = sweep_table(*typed(*sweep))
    cells = {line["model"]: line for line in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert [cells[model]["ndcg@20"] for model in "ABCD"] == ["0.3", "0.2", "", ""]
    assert [cells[model]["ndcg@20 published"] for model in ("A", "B", "D", "Graph net")] == ["0.31", "", "0.4", "0.9"]
    assert [cells[model]["state"] for model in ("A", "C", "Graph net")] == ["measured", "failed", "not run"]
    rows = {row["model"]: row for row in json.loads(render(table, "json"))["rows"]}
    assert rows["D"]["metrics"] == {} and rows["D"]["published"] == {"ndcg@20": 0.4} and rows["D"]["state"] == "not run"
    assert rows["A"]["state"] == "measured"


def test_a_note_says_why(sweep):
    notes = sweep_table(*typed(*sweep)).notes
    assert "not run: Graph net: a network of its own, not built here" in notes
    assert "C on x: the final run failed: no memory" in notes


def test_an_arm_of_which_every_searched_setting_failed_has_failed(make_run, make_sweep):
    runs = [make_run("final", "A", 0.3), make_run("search", "B", 0.1, status="failed", error="no memory", metrics={})]
    about, chosen, records, compared = make_sweep(runs, {"A": {}, "B": {}})
    assert [row.missing for row in sweep_table(*typed(about, chosen, records, compared)).rows] == ["", "failed"]
    # While the sweep goes on another setting may still work.
    assert [row.missing for row in sweep_table(*typed(about, None, records, compared)).rows] == ["not run", "not run"]


def test_a_sweep_that_is_not_finished_and_one_without_any_run_can_be_shown(sweep, tmp_path):
    about, _, records, compared = sweep
    files = write_report(tmp_path / "unfinished", *typed(about, None, records, compared))
    assert "The sweep is not finished" in files[0].read_text()
    files = write_report(tmp_path / "never", *typed(about | {"id": ""}, None, {}, compared))
    text = files[0].read_text()
    assert text.count("not run ") >= 5 and "Nothing was measured on test" in text and "How it was measured" not in text
    assert [path for path in files if path.suffix == ".png"] == []
    (first, *_) = csv.DictReader((tmp_path / "never" / "table.csv").open())
    assert (first["model"], first["ndcg@20"], first["ndcg@20 published"], first["state"]) == ("A", "", "0.31", "not run")


def test_the_places_of_equal_means_are_shared_and_a_dataset_has_its_own():
    def row(dataset, arm, mean, popularity):
        cells = {"ndcg@20": Cell(mean, None, None), "popularity@20": Cell(popularity, None, None)}
        return Row(dataset, arm, "m", {}, cells, {}, 1, 1, 1)

    means = {"x": [0.3, 0.3, 0.2, 0.1], "y": [0.1, 0.5], "z": [0.4]}
    rows = [row(dataset, f"{dataset}{i}", mean, i) for dataset, values in means.items() for i, mean in enumerate(values)]
    table = Table("t", ("ndcg@20", "popularity@20"), tuple(rows))
    places = {row.arm: table.rank(row, "ndcg@20") for row in rows}
    assert places == {"x0": 1, "x1": 1, "x2": 2, "x3": None, "y0": 2, "y1": 1, "z0": None}
    # Recommending popular items is no merit.
    assert {table.rank(row, "popularity@20") for row in rows} == {None}
    described = Table("t", ("gini@20",), tuple(replace(row, cells={"gini@20": row.cells["ndcg@20"]}) for row in rows))
    assert {described.rank(row, "gini@20") for row in described.rows} == {None}
    text = render(table, "md")
    assert text.count("**0.3000**") == 2 and "<u>0.2000</u>" in text and "**0.5000**" in text


def test_markdown_cells_hold_no_bars_and_no_tags():
    row = Row("x", "a|b <img src=1> p < 1", "m", {}, {"ndcg@20": Cell(0.1, None, None)}, {}, 1, 1, 1)
    line = render(Table("t", ("ndcg@20",), (row,)), "md").splitlines()[-1]
    assert "a\\|b &lt;img src=1> p < 1" in line


def test_a_dataset_that_could_not_be_had_says_so_in_each_cell_and_once_why(make_run, make_sweep, tmp_path):
    published = {"A": {"y": {"ndcg@20": 0.4}}, "B": {}}
    about, *rest = make_sweep([make_run("final", "A", 0.3), make_run("final", "B", 0.2)], published, datasets=["x", "y"])
    about |= {"not_available": {"y": {"brief": "offline", "reason": "y: y.zip is nowhere, and offline is set"}}}
    table = sweep_table(*typed(about, *rest))
    assert [(row.dataset, row.missing) for row in table.rows] == [
        ("x", ""), ("x", ""), ("y", "not available: offline"), ("y", "not available: offline"),
    ]  # fmt: skip
    assert "y is not available: y: y.zip is nowhere, and offline is set" in table.notes
    content = json.loads(render(table, "json"))
    assert content["rows"][2]["state"] == "not available: offline" and [*content["not_available"]] == ["y"]
    for format in ("md", "latex", "csv"):
        (line,) = [line for line in render(table, format).splitlines() if "0.4000" in line or ",0.4," in line]
        assert "not available: offline" in line
    files = write_report(tmp_path, *typed(about, *rest))
    page = next(path for path in files if path.name == "report.html").read_text()
    assert page.count(">not available: offline</td>") == 2 and "y is not available: y: y.zip is nowhere" in page


def test_what_was_measured_before_its_data_were_lost_stays(make_run, make_sweep):
    about, *rest = make_sweep([make_run("final", "A", 0.3)], {"A": {}, "B": {}})
    about |= {"not_available": {"x": {"brief": "offline", "reason": "x: nowhere"}}}
    assert [row.missing for row in sweep_table(*typed(about, *rest)).rows] == ["", "not available: offline"]
