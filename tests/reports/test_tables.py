"""Tables: the number, its interval, what was published and the difference, in every format."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from stored import typed

from rankbench.evaluation.compare import compare
from rankbench.reports.formats import render
from rankbench.reports.frame import frame_of
from rankbench.reports.plots import convergence_plot
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.tables import Cell, Row, Table, as_json, columns
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord

from ..pictures import size_of

COUNTS = {"users": 5, "items": 9, "train": 8, "valid": 1, "test": 2, "users_without_test_items": 0, "cold_test_items": 0}
DATASET = DatasetInfo(
    "x", "f", "published", split_seed=0, recall="recall", counts=COUNTS, differences=["prepared items: 9, published 10 (-1)"]
)
ENVIRONMENT = {
    "machine": {"cpu": "c", "cores": 2, "memory_bytes": 1e9}, "packages": {"numpy": "2"}, "revision": "abc", "python": "3",
    "blas": ["openblas"],
}  # fmt: skip


def record(stage, arm, mean, lam, seed=0):
    return RunRecord(
        id=f"{stage}-{arm}-{lam}-{seed}", method="ease", params={"lam": lam, "lam_prime": None}, dataset=DATASET,
        fit_on="train", measured_on="test", seed=seed, dtype="float32", arm=arm, stage=stage, environment=ENVIRONMENT,
        seconds={"fit": 1.5}, metrics={"ndcg@20": Measured(mean, mean - 0.01, mean + 0.01)},
    )  # fmt: skip


def compared(**columns):
    """A comparisons.json of per-user values of ndcg@20."""
    found = compare({arm: (np.arange(len(v)), np.array(v)) for arm, v in columns.items()}, dataset="x", metric="ndcg@20")
    models = [
        {"dataset": "x", "metric": "ndcg@20", "model": arm, "std": None, "best": False, "seeds": [0], **vars(found.means[arm])}
        for arm in columns
    ]
    return {"metrics": ["ndcg@20"], "models": models, "comparisons": [dataclasses.asdict(pair) for pair in found.pairs]}


@pytest.fixture
def sweep():
    """Two arms; the second one's final run failed."""
    records = [record("search", "=A", 0.2, 1.0), record("search", "=A", 0.1, 2.0), record("final", "=A", 0.25, 1.0)]
    failed = dataclasses.replace(record("final", "B", 0.1, 5.0), status="failed", error="no memory", metrics={})
    arms = [
        {
            "name": "=A",
            "method": "ease",
            "params": {"lam": {"grid": [1, 2]}},
            "chosen": {},
            "published": {"x": {"ndcg@20": 0.26}},
        },
        {"name": "B", "method": "ease", "params": {}, "chosen": {}, "published": {}},
    ]
    experiment = {
        "name": "e", "question": "Which?", "datasets": ["x"], "arms": arms,
        "published": {"paper": "P", "table": 2, "recall": "recall"},
        "search": {"choose": {"metric": "ndcg@20", "on": "valid"}},
    }  # fmt: skip
    about = {"id": "s", "experiment": experiment, "notes": ["a note"], "fits": 2, "started_at": "now"}
    rows = [
        {"dataset": "x", "arm": "=A", "final": ["final-=A-1.0-0"]},
        {"dataset": "x", "arm": "B", "final": ["final-B-5.0-0"]},
    ]
    return about, {"rows": rows}, {r.id: r for r in [*records, failed]}, compared(**{"=A": [0.2, 0.3]})


@pytest.fixture
def several(sweep):
    """Three models: A best; B, of two seeds, far below; C all but A."""
    about, _, _, _ = sweep
    values = np.linspace(0.2, 0.6, 60)
    columns = {"A": values, "B": values - 0.1, "C": values + np.where(np.arange(60) % 2, 0.02, -0.021)}
    finals = [record("final", "A", 0.4, 1.0), record("final", "B", 0.31, 1.0), record("final", "B", 0.29, 1.0, seed=1)]
    finals.append(record("final", "C", 0.3995, 1.0))
    arms = [{"name": arm, "method": "ease", "params": {}, "chosen": {"x": {"lam": 1}}, "published": {}} for arm in "ABC"]
    rows = [{"dataset": "x", "arm": arm, "final": [r.id for r in finals if r.arm == arm]} for arm in "ABC"]
    about = about | {"experiment": about["experiment"] | {"arms": arms}}
    return about, {"rows": rows}, {r.id: r for r in finals}, compared(**columns)


def test_a_setting_shows_what_the_experiment_states_and_no_defaults(sweep):
    about, chosen, records, pairs = sweep
    records = {name: dataclasses.replace(r, params=r.params | {"solver": "exact"}) for name, r in records.items()}
    table = sweep_table(*typed(about, chosen, records, pairs))
    assert table.rows[0].params == {"lam": 1.0, "solver": "exact"}
    assert "lam=1" in render(table, "md") and "solver" not in render(table, "md")


def test_measured_published_and_difference_stand_side_by_side(sweep):
    row, failed = sweep_table(*typed(*sweep)).rows
    assert (failed.arm, failed.missing, failed.cells) == ("B", "failed", {})
    cell = row.cells["ndcg@20"]
    assert (cell.mean, cell.published) == (0.25, 0.26)
    assert cell.delta == pytest.approx(-0.01)
    assert row.chosen_of == 2 and row.params == {"lam": 1.0}


def test_a_failed_row_and_a_count_difference_are_notes(sweep):
    notes = sweep_table(*typed(*sweep)).notes
    assert "B on x: the final run failed: no memory" in notes
    assert "x: prepared items: 9, published 10 (-1)" in notes
    assert notes[0] == "a note"


def test_csv_reads_back_and_cannot_run_as_a_formula(sweep):
    header, line, failed = csv.reader(io.StringIO(render(sweep_table(*typed(*sweep)), "csv")))
    assert len({*header}) == len(header)
    cells, lost = (dict(zip(header, each, strict=True)) for each in (line, failed))
    assert (lost["model"], lost["ndcg@20"], lost["state"]) == ("B", "", "failed")
    assert (float(cells["ndcg@20"]), float(cells["ndcg@20 published"]), cells["setting"]) == (0.25, 0.26, "lam=1")
    assert float(cells["ndcg@20 low"]) < 0.25 < float(cells["ndcg@20 high"])
    assert cells["model"] == "'=A"


def test_json_holds_full_precision(sweep):
    row, failed = json.loads(render(sweep_table(*typed(*sweep)), "json"))["rows"]
    assert row["metrics"]["ndcg@20"]["mean"] == 0.25
    assert (row["state"], failed["state"]) == ("measured", "failed")


def test_latex_escapes_and_has_booktabs(sweep):
    text = render(sweep_table(*typed(*sweep)), "latex")
    assert "\\toprule" in text and "95 \\% interval" in text


def test_a_row_of_two_seeds_has_their_mean_and_standard_deviation(several):
    table = sweep_table(*typed(*several))
    cell = table.rows[1].cells["ndcg@20"]
    assert cell.mean == pytest.approx(0.3) and cell.low < 0.3 < cell.high
    assert cell.std == pytest.approx(np.std([0.31, 0.29], ddof=1))
    assert table.rows[0].cells["ndcg@20"].std is None and table.rows[1].seeds == (0, 1)
    assert "mean ± standard deviation of 2 runs, seed 0, 1, split seed 0: B on x" in table.notes
    header, *lines = csv.reader(io.StringIO(render(table, "csv")))
    assert [line[header.index("ndcg@20 std")][:6] for line in lines] == ["", "0.0141", ""]


EXPLAINED = "not distinguishable from the best of its dataset in this metric at 0.05"


def test_only_means_that_cannot_be_told_from_the_best_are_marked_and_the_mark_is_explained(several, tmp_path):
    table = sweep_table(*typed(*several))
    assert [table.tied(row, "ndcg@20") for row in table.rows] == [False, False, True]
    text = render(table, "md")
    assert "<u>0.3995 †</u>" in text and text.count("†") == 2 and f"† {EXPLAINED}" in text
    assert sum(note.startswith(f"† {EXPLAINED}") for note in table.notes) == 1
    assert f"$^{{\\dagger}}$ {EXPLAINED}" in render(table, "latex")
    written = {path.name: path.read_text() for path in write_report(tmp_path, *typed(*several)) if path.suffix != ".png"}
    assert all(f"† {EXPLAINED}" in written[name] for name in ("report.md", "report.html"))


def test_a_mark_stands_at_the_metric_that_it_is_about(several):
    table = sweep_table(*typed(*several))
    rows = [dataclasses.replace(row, cells=row.cells | {"x@5": Cell(0.1, None, None)}) for row in table.rows]
    other = dataclasses.replace(table, metrics=("x@5", "ndcg@20"), rows=tuple(rows))
    assert [cell.count("†") for cell in columns(other)[1][2]][:6] == [0, 0, 0, 1, 0, 0]
    (c,) = [row for row in as_json(other)["rows"] if row["model"] == "C"]
    assert c["metrics"]["ndcg@20"]["tied"] and not c["metrics"]["x@5"]["tied"]
    frame = frame_of(other).set_index("model")
    assert frame.loc["C", "ndcg@20 tied"] and not frame.loc["C", "x@5 tied"]
    assert dataclasses.replace(table, differences=()).legend == ()


def test_names_of_models_have_no_mark(several):
    table = sweep_table(*typed(*several))
    # A program looks names up.
    assert [line[1] for line in csv.reader(io.StringIO(render(table, "csv")))] == ["model", "A", "B", "C"]


def test_latex_sets_the_best_in_bold_the_second_underlined_and_the_mark_as_a_dagger(several):
    text = render(sweep_table(*typed(*several)), "latex")
    assert text.count("\\textbf{") == 1 and "\\textbf{0.4000}" in text
    assert text.count("\\underline{") == 1 and "\\underline{0.3995 $^{\\dagger}$}" in text
    assert "$\\pm$ std" in text


def test_json_holds_the_differences(several):
    content = json.loads(render(sweep_table(*typed(*several)), "json"))
    found = {(pair["model"], pair["against"]): pair for pair in content["differences"]}
    assert set(found) == {("B", "A"), ("C", "A")}
    assert found["B", "A"]["difference"] == pytest.approx(-0.1) and found["B", "A"]["verdict"] == "worse"
    assert found["C", "A"]["verdict"] == "not distinguishable at 0.05"
    assert [row["metrics"]["ndcg@20"]["tied"] for row in content["rows"]] == [False, False, True]


def test_the_report_says_which_models_differ_and_how_it_was_decided(several, tmp_path, drawn):
    files = write_report(tmp_path, *typed(*several))
    assert "differences.png" in {path.name for path in files}
    _, (differences,), _ = drawn
    assert [-0.1, 1.0] in differences.round(9).tolist()  # B, above C
    size_of(tmp_path / "differences.png")
    text = (tmp_path / "report.md").read_text()
    section = text.split("## Differences")[1].split("\n## ")[0]
    words = " ".join(section.split())
    assert "60 users, the same for every model" in words and "corrected by Holm's method for all pairs of models" in words
    line = next(line for line in section.splitlines() if line.startswith("| B"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["B", "worse", "A", "-0.1000"] and cells[6] == "< 0.001"
    assert cells[-1] == "0 / 0 / 100 %"
    assert "not distinguishable at 0.05" in next(line for line in section.splitlines() if line.startswith("| C"))
    assert "the value of a user is the mean over the seeds of the method on each split" in text


def test_the_report_is_a_folder_of_text_tables_and_pictures(sweep, tmp_path, drawn):
    files = write_report(tmp_path / "report", *typed(*sweep))
    names = {path.name for path in files}
    # One model differs from no other: there is nothing to show.
    assert names == {"report.md", "report.html", "table.csv", "table.json", "table.tex", "final.png", "search.png"}
    text = (tmp_path / "report" / "report.md").read_text()
    assert "Which?" in text and "0.2500" in text and "`abc`" in text and "](final.png)" in text
    _, (settings,) = drawn
    assert sorted(map(tuple, settings.tolist())) == [(1.0, 0.2), (1.0, 0.2), (2.0, 0.1)]  # the best one has a circle
    size_of(tmp_path / "report" / "search.png")


@pytest.mark.parametrize("which", ["dataset", "table"])
def test_where_the_paper_leaves_its_recall_open_its_number_stands_beside_both(sweep, which):
    about, chosen, records, found = sweep
    about["experiment"]["arms"][0]["published"] = {"x": {"recall@20": 0.3}}
    about["experiment"]["published"]["recall"] = "open" if which == "table" else "recall"
    data = dataclasses.replace(DATASET, recall="open" if which == "dataset" else "recall", stand_in="x for y")
    means = {"recall@20": 0.2, "recall_capped@20": 0.4}
    metrics = {name: Measured(mean) for name, mean in means.items()}
    records = {key: dataclasses.replace(r, dataset=data, metrics=metrics) for key, r in records.items() if r.finished}
    found = found | {"metrics": ["recall@20", "recall_capped@20"], "comparisons": []}
    table = sweep_table(*typed(about, chosen, records, found))
    cells = table.rows[0].cells
    assert {name: cell.published for name, cell in cells.items()} == {"recall@20": 0.3, "recall_capped@20": 0.3}
    assert "x is a stand-in: x for y" in table.notes
    assert any("do not say which recall" in note for note in table.notes) == (which == "dataset")


def test_what_was_watched_on_validation_is_drawn_where_nothing_else_was(tmp_path, drawn):
    rows = [{"iteration": i, "seconds": 0.1 * i, "loss": 1.0} for i in range(1, 5)]
    plain = dataclasses.replace(record("final", "A", 0.2, 1.0), curve=rows)
    watched = dataclasses.replace(plain, params={"stop_metric": "ndcg@20"}, curve=[row | {"valid": 0.1} for row in rows])
    assert convergence_plot([plain], "ndcg@20", tmp_path / "none.png") is None
    path = convergence_plot([plain, watched], "ndcg@20", tmp_path / "valid.png", ["B", "A"])
    ((by_iteration, by_seconds),) = drawn
    assert by_iteration.tolist() == [[i, 0.1] for i in range(1, 5)]
    assert by_seconds.tolist() == [[0.1 * i, 0.1] for i in range(1, 5)]
    size_of(path)


def test_a_parameter_that_many_rows_share_is_told_once():
    def row(arm, **params):
        return Row("d", arm, "m", params, {"ndcg@20": Cell(0.1, 0.0, 0.2, None, None)}, {}, 1, 1.0, 1, stated=tuple(params))

    rows = [row(f"a{i}", epochs=60, tau=0.1 * i, batch_size=8) for i in range(5)]
    table = Table("t", ("ndcg@20",), (*rows[:4], row("ease", lam=3)))
    assert table.common == {}  # of four rows
    table = Table("t", ("ndcg@20",), (*rows, row("ease", lam=3)))
    assert table.common == {"epochs": 60, "batch_size": 8}
    header, body = columns(table)
    assert [line[header.index("setting")] for line in body[1::4]] == ["tau=0.1", "lam=3"]
    assert Table("t", ("ndcg@20",), (*rows, row("other", epochs=61))).common == {"batch_size": 8}
