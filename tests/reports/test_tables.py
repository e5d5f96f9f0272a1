"""Tables: the number, its interval, what was published, the difference, and rows without a measurement, in every format."""

import csv
import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from rankbench.judge.compare import compare
from rankbench.reports.markdown import markdown
from rankbench.reports.report import report_page, sweep_table, write_report
from rankbench.reports.rows import Cell, ReportRow
from rankbench.reports.tables import Table, columns, render
from rankbench.tracking.record import Measured

DIFFERS = "prepared items: 9, published 10 (-1)"
OTHERS = [
    {"name": "Graph net", "why": "a network of its own, not built here", "published": {"x": {"ndcg@20": 0.9}}},
    {"name": "Elsewhere", "why": "another dataset alone", "published": {"z": {"ndcg@20": 0.8}}},
]


def compared(**columns):
    """A comparisons.json of per-user values of ndcg@20."""
    found = compare({arm: (np.arange(len(v)), np.array(v)) for arm, v in columns.items()}, dataset="x", metric="ndcg@20")
    models = [
        {"dataset": "x", "metric": "ndcg@20", "model": arm, "std": None, "best": False, "seeds": [0], **vars(found.means[arm])}
        for arm in columns
    ]
    return {"models": models, "comparisons": [asdict(pair) for pair in found.pairs]}


@pytest.fixture
def sweep(make_run, make_sweep):
    """One model with a search, a failed one, one that was never run, and one that is not built."""
    runs = [make_run("search", "=A", mean, params={"lam": lam, "solver": "exact"}) for mean, lam in ((0.2, 1.0), (0.1, 2.0))]
    runs.append(
        make_run("final", "=A", 0.25, params={"lam": 1.0, "solver": "exact", "none": None}, data={"differences": [DIFFERS]})
    )
    runs.append(make_run("final", "B", 0.1, status="failed", error="no memory", metrics={}))
    published = {"=A": {"x": {"ndcg@20": 0.26}}, "B": {"x": {"ndcg@20": 0.5}}, "C": {"x": {"ndcg@20": 0.4}}}
    notes = {"notes": ["a note"]}
    return make_sweep(runs, published, not_run=OTHERS, params={"lam": {"grid": [1, 2]}}, about=notes)


@pytest.fixture
def several(make_run, make_sweep):
    """Three models: A best; B, of two seeds, far below; C all but A."""
    values = np.linspace(0.2, 0.6, 60)
    tests = compared(A=values, B=values - 0.1, C=values + np.where(np.arange(60) % 2, 0.02, -0.021))
    means = (("A", 0.4, 0), ("B", 0.31, 0), ("B", 0.29, 1), ("C", 0.3995, 0))
    return make_sweep(
        [make_run("final", arm, mean, seed=seed) for arm, mean, seed in means], {"A": {}, "B": {}, "C": {}}, compared=tests
    )


def lines_of(table):
    return {line["model"]: line for line in csv.DictReader(io.StringIO(render(table, "csv")))}


def test_a_row_has_what_was_measured_and_published_and_what_the_experiment_states(sweep):
    table = sweep_table(sweep)
    assert [(row.arm, row.missing) for row in table.rows] == [
        ("=A", ""), ("B", "failed"), ("C", "not run"), ("Graph net", "not run"),
    ]  # fmt: skip
    row, cell = table.rows[0], table.rows[0].cells["ndcg@20"]
    assert (cell.mean, cell.published, cell.difference) == (0.25, 0.26, pytest.approx(-0.01))
    assert row.chosen_of == 2 and row.params == {"lam": 1.0, "solver": "exact"}
    assert "lam=1" in render(table, "md") and "solver" not in render(table, "md")
    assert table.notes[0] == "a note"
    said = {"B on x: the final run failed: no memory", f"x: {DIFFERS}", f"not run: Graph net: {OTHERS[0]['why']}"}
    assert said <= set(table.notes)


@pytest.mark.parametrize("format", ["md", "latex"])
def test_a_row_that_was_not_run_has_its_published_number_in_every_format(sweep, format):
    text = render(sweep_table(sweep), format)
    for arm, state, number in (("B", "failed", "0.5000"), ("C", "not run", "0.4000"), ("Graph net", "not run", "0.9000")):
        (line,) = [line for line in text.splitlines() if line.lstrip("| ").startswith(arm)]
        assert state in line and number in line
    assert format == "md" or ("\\toprule" in text and "95 \\% interval" in text)


def test_csv_reads_back_has_no_number_where_nothing_was_measured_and_cannot_run_as_a_formula(sweep):
    table = sweep_table(sweep)
    header, *_ = csv.reader(io.StringIO(render(table, "csv")))
    assert len({*header}) == len(header)
    cells = lines_of(table)
    assert [cells[model]["ndcg@20"] for model in ("'=A", "B", "C")] == ["0.25", "", ""]
    assert [cells[model]["ndcg@20 published"] for model in ("'=A", "C", "Graph net")] == ["0.26", "0.4", "0.9"]
    assert [cells[model]["state"] for model in ("'=A", "B", "Graph net")] == ["measured", "failed", "not run"]
    first = cells["'=A"]
    assert first["setting"] == "lam=1" and float(first["ndcg@20 low"]) < 0.25 < float(first["ndcg@20 high"])


def test_json_holds_full_precision_states_and_differences(sweep, several):
    rows = {row["model"]: row for row in json.loads(render(sweep_table(sweep), "json"))["rows"]}
    assert rows["=A"]["metrics"]["ndcg@20"]["mean"] == 0.25
    assert (rows["=A"]["state"], rows["B"]["state"], rows["C"]["state"]) == ("measured", "failed", "not run")
    assert rows["C"]["metrics"] == {} and rows["C"]["published"] == {"ndcg@20": 0.4}
    content = json.loads(render(sweep_table(several), "json"))
    found = {(pair["model"], pair["against"]): pair for pair in content["differences"]}
    assert set(found) == {("B", "A"), ("C", "A")}
    assert found["B", "A"]["difference"] == pytest.approx(-0.1) and found["B", "A"]["verdict"] == "worse"
    assert found["C", "A"]["verdict"] == "not distinguishable at 0.05"
    assert [row["metrics"]["ndcg@20"]["tied"] for row in content["rows"]] == [False, False, True]


def test_a_row_of_two_seeds_has_their_mean_and_standard_deviation(several):
    table = sweep_table(several)
    cell = table.rows[1].cells["ndcg@20"]
    assert cell.mean == pytest.approx(0.3) and cell.low < 0.3 < cell.high
    assert cell.std == pytest.approx(np.std([0.31, 0.29], ddof=1))
    assert table.rows[0].cells["ndcg@20"].std is None and table.rows[1].seeds == (0, 1)
    assert "mean ± standard deviation of 2 runs, seed 0, 1, split seed 0: B on x" in table.notes
    assert [line["ndcg@20 std"][:6] for line in lines_of(table).values()] == ["", "0.0141", ""]


EXPLAINED = "not distinguishable from the best of its dataset in this metric at 0.05"


def test_only_means_that_cannot_be_told_from_the_best_are_marked_and_the_mark_is_explained(several, tmp_path):
    table = sweep_table(several)
    assert [table.tied(row, "ndcg@20") for row in table.rows] == [False, False, True]
    text, latex = render(table, "md"), render(table, "latex")
    assert "<u>0.3995 †</u>" in text and text.count("†") == 2 and f"† {EXPLAINED}" in text
    assert sum(note.startswith(f"† {EXPLAINED}") for note in table.notes) == 1
    assert f"$^{{\\dagger}}$ {EXPLAINED}" in latex and "$\\pm$ std" in latex
    assert latex.count("\\textbf{") == latex.count("\\textbf{0.4000}") == 1
    assert latex.count("\\underline{") == latex.count("\\underline{0.3995 $^{\\dagger}$}") == 1
    assert list(lines_of(table)) == ["A", "B", "C"]  # a program looks names up
    written = {path.name: path.read_text() for path in write_report(tmp_path, several) if path.suffix != ".png"}
    assert all(f"† {EXPLAINED}" in written[name] for name in ("report.md", "report.html"))


def test_the_report_names_every_machine_that_measured_a_row(make_run, make_sweep):
    runs = [make_run("final", arm, 0.3) for arm in ("A", "B", "C")]
    runs[2] = replace(runs[2], environment=runs[2].environment | {"machine": {"cpu": "AMD", "cores": 4, "memory_bytes": 2e9}})
    stored = make_sweep(runs, {arm: {} for arm in "ABC"})
    text = markdown(report_page(stored, sweep_table(stored)))
    assert "- machine: c, 2 cores, 1 GB; 0 threads per fit; float32; openblas (2 of 3 final runs)" in text
    assert "- machine: AMD, 4 cores, 2 GB; 0 threads per fit; float32; openblas (1 of 3 final runs)" in text
    assert "- revision: `abc`; Python 3, numpy 2\n" in text  # of all of them


def test_the_report_is_a_folder_of_text_tables_and_pictures(sweep, several, tmp_path):
    names = {path.name for path in write_report(tmp_path / "one", sweep)}
    # One model differs from no other: there is nothing to show.
    assert names == {"report.md", "report.html", "table.csv", "table.json", "table.tex", "final.png", "search.png"}
    text = (tmp_path / "one" / "report.md").read_text()
    assert "Which?" in text and "0.2500" in text and "`abc`" in text and "](final.png)" in text
    assert "differences.png" in {path.name for path in write_report(tmp_path, several)}
    text = (tmp_path / "report.md").read_text()
    section = text.split("## Differences")[1].split("\n## ")[0]
    words = " ".join(section.split())
    assert "60 users, the same for every model" in words and "corrected by Holm's method for all pairs of models" in words
    cells = [
        cell.strip() for cell in next(line for line in section.splitlines() if line.startswith("| B")).strip("|").split("|")
    ]
    assert cells[:4] == ["B", "worse", "A", "-0.1000"] and cells[6] == "< 0.001" and cells[-1] == "0 / 0 / 100 %"
    assert "not distinguishable at 0.05" in next(line for line in section.splitlines() if line.startswith("| C"))
    assert "the value of a user is the mean over the seeds of the method on each split" in text


@pytest.mark.parametrize("which", ["dataset", "table"])
def test_where_the_paper_leaves_its_recall_open_its_number_stands_beside_both(make_run, make_sweep, which):
    metrics = {"recall@20": 0.2, "recall_capped@20": 0.4}
    data = {"recall": "open" if which == "dataset" else "recall"}
    run = make_run("final", "A", 0.3, data=data, metrics={name: Measured(mean) for name, mean in metrics.items()})
    recall = "open" if which == "table" else "recall"
    table = sweep_table(make_sweep([run], {"A": {"x": {"recall@20": 0.3}}}, recall=recall, metrics=metrics))
    assert {name: cell.published for name, cell in table.rows[0].cells.items()} == dict.fromkeys(metrics, 0.3)
    assert any("do not say which recall" in note for note in table.notes) == (which == "dataset")


def test_beside_a_stand_in_no_published_number_is_shown(make_run, make_sweep):
    runs = [make_run("final", "A", 0.3, name, data={"stand_in": "x for y"} if name == "x" else {}) for name in "xy"]
    table = sweep_table(make_sweep(runs, {"A": {name: {"ndcg@20": 0.26} for name in "xy"}}, "xy"))
    assert (
        [row.published for row in table.rows]
        == [{}, {"ndcg@20": 0.26}]
        == [{name: cell.published for name, cell in row.cells.items() if cell.published} for row in table.rows]
    )


def test_an_arm_of_which_every_searched_setting_failed_has_failed(make_run, make_sweep):
    runs = [make_run("final", "A", 0.3), make_run("search", "B", 0.1, status="failed", error="no memory", metrics={})]
    for finished, states in ((True, ["", "failed"]), (False, ["not run", "not run"])):  # another setting may still work
        assert [row.missing for row in sweep_table(make_sweep(runs, {"A": {}, "B": {}}, finished=finished)).rows] == states


def test_a_sweep_that_is_not_finished_and_one_without_any_run_can_be_shown(sweep, tmp_path):
    assert "The sweep is not finished" in write_report(tmp_path / "unfinished", replace(sweep, chosen=None))[0].read_text()
    later = replace(sweep, chosen=sweep.chosen.model_copy(update={"rows": ()}))  # data became available after it had ended
    assert "The sweep is not finished" in write_report(tmp_path / "later", later)[0].read_text()
    about = sweep.about.model_copy(update={"id": ""})
    files = write_report(tmp_path / "never", replace(sweep, about=about, chosen=None, records={}))
    text = files[0].read_text()
    assert text.count("not run ") >= 4 and "Nothing was measured on test" in text and "How it was measured" not in text
    assert [path for path in files if path.suffix == ".png"] == []
    (first, *_) = csv.DictReader((tmp_path / "never" / "table.csv").open())
    assert (first["model"], first["ndcg@20"], first["ndcg@20 published"], first["state"]) == ("'=A", "", "0.26", "not run")


def test_the_places_of_equal_means_are_shared_and_a_dataset_has_its_own():
    def row(dataset, arm, mean, popularity):
        cells = {"ndcg@20": Cell(mean, None, None), "popularity@20": Cell(popularity, None, None)}
        return ReportRow(dataset, arm, "m", {}, cells, {}, 1, 1, 1)

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
    row = ReportRow("x", "a|b <img src=1> p < 1", "m", {}, {"ndcg@20": Cell(0.1, None, None)}, {}, 1, 1, 1)
    line = render(Table("t", ("ndcg@20",), (row,)), "md").splitlines()[-1]
    assert "a\\|b &lt;img src=1> p < 1" in line


def test_a_dataset_that_could_not_be_had_says_so_in_each_cell_and_once_why(make_run, make_sweep, tmp_path):
    gone = {"not_available": {"y": {"brief": "offline", "reason": "y: y.zip is nowhere, and offline is set"}}}
    runs = [make_run("final", "A", 0.3), make_run("final", "B", 0.2)]
    sweep = make_sweep(runs, {"A": {"y": {"ndcg@20": 0.4}}, "B": {}}, "xy", about=gone)
    table = sweep_table(sweep)
    state = "not available: offline"
    assert [(row.dataset, row.missing) for row in table.rows] == [("x", ""), ("x", ""), ("y", state), ("y", state)]
    assert "y is not available: y: y.zip is nowhere, and offline is set" in table.notes
    content = json.loads(render(table, "json"))
    assert content["rows"][2]["state"] == state and [*content["not_available"]] == ["y"]
    for format in ("md", "latex", "csv"):
        (line,) = [line for line in render(table, format).splitlines() if "0.4000" in line or ",0.4," in line]
        assert state in line
    page = next(path for path in write_report(tmp_path, sweep) if path.name == "report.html").read_text()
    assert page.count(f">{state}</td>") == 2 and "y is not available: y: y.zip is nowhere" in page


def test_a_parameter_that_many_rows_share_is_told_once():
    def row(arm, **params):
        return ReportRow(
            "d", arm, "m", params, {"ndcg@20": Cell(0.1, 0.0, 0.2, None, None)}, {}, 1, 1.0, 1, stated=tuple(params)
        )

    rows = [row(f"a{i}", epochs=60, tau=0.1 * i, batch_size=8) for i in range(5)]
    assert Table("t", ("ndcg@20",), (*rows[:4], row("ease", lam=3))).common == {}  # of four rows
    table = Table("t", ("ndcg@20",), (*rows, row("ease", lam=3)))
    assert table.common == {"epochs": 60, "batch_size": 8}
    header, body = columns(table)
    assert [line[header.index("setting")] for line in body[1::4]] == ["tau=0.1", "lam=3"]
    assert Table("t", ("ndcg@20",), (*rows, row("other", epochs=61))).common == {"batch_size": 8}
    silent = replace(row("silent", epochs=100), stated=())  # a row with the default
    assert Table("t", ("ndcg@20",), (*rows, silent)).common == {"batch_size": 8}
