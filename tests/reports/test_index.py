"""The index: the state of each experiment, by its rule, on sweeps built for it."""

import json
from pathlib import Path

import pytest

from rankbench.reports.index import Entry, entry, index_page, write_index
from rankbench.reports.page import Link
from rankbench.reports.report import sweep_table
from rankbench.tracking.record import Measured

OTHER = {"name": "Graph net", "why": "not built here", "published": {"x": {"ndcg@20": 0.9}}}


def entry_of(stored):
    return entry(stored.about.experiment, Path("e.yaml"), sweep_table(stored), stored)


@pytest.fixture
def state(make_run, make_sweep):
    """state(means by (arm, dataset), published, **of make_sweep) → the index entry."""

    def find(means, published, data=None, **more):
        runs = [make_run("final", arm, mean, dataset, half=0.001, data=data) for (arm, dataset), mean in means.items()]
        return entry_of(make_sweep(runs, published, finished=bool(means), **more))

    return find


def test_the_state_of_an_experiment(state):
    near, far = {"x": {"ndcg@20": 0.301}}, {"x": {"ndcg@20": 0.4}}
    both = {("A", "x"): 0.3, ("B", "x"): 0.3}
    assert state({}, {"A": near}).state == "not run"
    assert state(both, {"A": near, "B": near}).state == "reproduced"
    assert state(both, {"A": near, "B": {}}).state == "reproduced"
    assert state(both, {"A": near, "B": far}).state == "differs"
    assert state(both, {"A": {}, "B": {}}).state == "measured"
    assert state({("A", "x"): 0.3}, {"A": near, "B": near}).state == "partly"
    assert state({("A", "x"): 0.3}, {"A": near}, not_run=[OTHER]).state == "partly"
    assert state({("A", "x"): 0.3}, {"A": near | {"y": {"ndcg@20": 0.3}}}, datasets=["x", "y"]).state == "partly"
    assert state({("A", "x"): 0.3}, {"A": far, "B": near}).state == "differs"
    # A number of other data says nothing, whichever way it lies.
    assert state(both, {"A": near, "B": far}, data={"stand_in": "x for y"}).state == "measured"


def test_rows_and_the_largest_difference(state):
    found = state({("A", "x"): 0.3, ("B", "x"): 0.29}, {"A": {"x": {"ndcg@20": 0.2}}, "B": {"x": {"ndcg@20": 0.295}}, "C": {}})
    assert (found.rows_measured, found.rows, found.met, found.judged) == (2, 3, 1, 2)
    assert found.largest == pytest.approx(0.1) and found.largest_percent == pytest.approx(50)
    assert found.largest_of == "A on x, ndcg@20" and found.paper == "P, table 2"
    assert found.finished_at.startswith("2026-11-21") and found.sweep == "s"


def test_where_recall_is_open_the_nearer_of_both_counts(make_run, make_sweep):
    metrics = {"recall@20": 0.2, "recall_capped@20": 0.301}
    run = make_run("final", "A", 0.3, metrics={name: Measured(mean, mean, mean) for name, mean in metrics.items()})
    found = entry_of(make_sweep([run], {"A": {"x": {"recall@20": 0.3}}}, recall="open", metrics=tuple(metrics)))
    assert (found.state, found.judged) == ("reproduced", 1)
    assert found.largest == pytest.approx(0.001)


def test_the_index_is_three_files_with_links_and_its_rule(tmp_path):
    entries = [
        Entry("b", "b.yaml", "Q?", "", "measured", rows_measured=1, rows=1),
        Entry("a", "a.yaml", "Q?", "P, table 2", "not run", rows=4),
    ]
    assert [line[0] for line in index_page(entries).sections[0].blocks[0].body] == [
        Link("a", "a/report"),
        Link("b", "b/report"),
    ]
    files = write_index(tmp_path, entries)
    assert [path.name for path in files] == ["index.html", "index.md", "index.json"]
    assert '<a href="a/report.html">a</a>' in files[0].read_text()
    assert "[a](a/report.md)" in files[1].read_text() and "at most 3 %\nof it" in files[1].read_text()
    content = json.loads(files[2].read_text())
    assert content["states"]["not run"] == 1 and content["experiments"][1]["name"] == "a" and "3 %" in content["rule"]


def test_the_index_says_which_data_could_not_be_had(make_run, make_sweep, tmp_path):
    gone = {"not_available": {"y": {"brief": "offline", "reason": "y: nowhere"}}}
    found = entry_of(make_sweep([make_run("final", "A", 0.3)], {"A": {"x": {"ndcg@20": 0.3}}}, datasets=["x", "y"], about=gone))
    assert (found.state, found.rows_measured, found.rows) == ("partly", 1, 2)
    grid = index_page([found, Entry("b", "b.yaml", "Q?", "", "measured")]).sections[0].blocks[0]
    column = grid.header.index("not available")
    assert [line[column] for line in grid.body] == ["y: offline", ""]
    assert all(len(line) == len(grid.header) for line in grid.body)
    content = json.loads(write_index(tmp_path, [found])[2].read_text())
    assert content["experiments"][0]["not_available"] == {"y": {"brief": "offline", "reason": "y: nowhere"}}
