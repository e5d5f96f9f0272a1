"""Tables: the number, its interval, what was published and the difference, in every format."""

import csv
import dataclasses
import io
import json

import pytest

from rankbench.reports.report import default_metrics, sweep_table, write_report
from rankbench.reports.tables import render
from rankbench.tracking.record import RunRecord

COUNTS = {"users": 5, "items": 9, "train": 8, "valid": 1, "test": 2, "users_without_test_items": 0, "cold_test_items": 0}
DATASET = {
    "name": "x", "fingerprint": "f", "protocol": "published", "split_seed": 0, "recall": "recall", "counts": COUNTS,
    "differences": ["prepared items: 9, published 10 (-1)"],
}  # fmt: skip
ENVIRONMENT = {
    "machine": {"cpu": "c", "cores": 2, "memory_bytes": 1e9}, "packages": {"numpy": "2"}, "revision": "abc", "python": "3",
    "blas": ["openblas"],
}  # fmt: skip


def record(stage, arm, mean, lam):
    return RunRecord(
        id=f"{stage}-{arm}-{lam}", method="ease", params={"lam": lam, "lam_prime": None}, dataset=DATASET, fit_on="train",
        measured_on="test", seed=0, dtype="float32", arm=arm, stage=stage, environment=ENVIRONMENT, seconds={"fit": 1.5},
        metrics={"ndcg@20": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}},
    )  # fmt: skip


@pytest.fixture
def sweep():
    """Two arms; the second one's final run failed."""
    records = [record("search", "=A", 0.2, 1.0), record("search", "=A", 0.1, 2.0), record("final", "=A", 0.25, 1.0)]
    failed = dataclasses.replace(record("final", "B", 0.1, 5.0), status="failed", error="no memory", metrics={})
    arms = [
        {"name": "=A", "method": "ease", "published": {"x": {"ndcg@20": 0.26}}},
        {"name": "B", "method": "ease", "published": {}},
    ]
    experiment = {
        "name": "e", "question": "Which?", "arms": arms, "published": {"paper": "P", "table": 2},
        "search": {"choose": {"metric": "ndcg@20", "on": "valid"}},
    }  # fmt: skip
    about = {"id": "s", "experiment": experiment, "notes": ["a note"], "fits": 2, "started_at": "now"}
    rows = [{"dataset": "x", "arm": "=A", "final": "final-=A-1.0"}, {"dataset": "x", "arm": "B", "final": "final-B-5.0"}]
    return about, {"rows": rows}, {r.id: r for r in [*records, failed]}


def test_measured_published_and_difference_stand_side_by_side(sweep):
    (row,) = sweep_table(*sweep).rows
    cell = row.cells["ndcg@20"]
    assert (cell.mean, cell.published) == (0.25, 0.26)
    assert cell.delta == pytest.approx(-0.01)
    assert row.chosen_of == 2 and row.params == {"lam": 1.0}


def test_a_failed_row_and_a_count_difference_are_notes(sweep):
    notes = sweep_table(*sweep).notes
    assert "B on x: the final run failed: no memory" in notes
    assert "x: prepared items: 9, published 10 (-1)" in notes
    assert notes[0] == "a note"


def test_csv_reads_back_and_cannot_run_as_a_formula(sweep):
    header, line = csv.reader(io.StringIO(render(sweep_table(*sweep), "csv")))
    cells = dict(zip(header, line, strict=True))
    assert (cells["ndcg@20"], cells["published"], cells["difference"]) == ("0.2500", "0.2600", "-0.0100")
    assert cells["model"] == "'=A"


def test_json_holds_full_precision(sweep):
    (row,) = json.loads(render(sweep_table(*sweep), "json"))["rows"]
    assert row["metrics"]["ndcg@20"]["mean"] == 0.25


def test_latex_escapes_and_has_booktabs(sweep):
    text = render(sweep_table(*sweep), "latex")
    assert "\\toprule" in text and "95 \\% interval" in text


def test_columns_are_what_the_paper_reports_or_what_was_searched(sweep):
    experiment = sweep[0]["experiment"]
    assert default_metrics(experiment) == ("ndcg@20",)
    unpublished = experiment | {"arms": [{"published": {}}]}
    assert default_metrics(unpublished) == ("recall@20", "ndcg@20")


def test_the_report_is_a_folder_of_text_tables_and_pictures(sweep, tmp_path):
    files = write_report(tmp_path / "report", *sweep)
    names = {path.name for path in files}
    assert names == {"report.md", "table.csv", "table.json", "table.tex", "final.png", "search.png"}
    text = (tmp_path / "report" / "report.md").read_text()
    assert "Which?" in text and "0.2500" in text and "`abc`" in text and "![final](final.png)" in text
    assert (tmp_path / "report" / "search.png").read_bytes().startswith(b"\x89PNG")
