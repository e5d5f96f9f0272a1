"""MLflow shows the published numbers beside the measured ones."""

from dataclasses import replace

from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.mlflow_tags import published_tags
from rankbench.reproduce.required_fits import rows_of
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord

RECORD = RunRecord(
    "final-ease", "ease", {"lam": 10}, DatasetInfo("synthetic", "f"), "train", "test", 0, "float32",
    metrics={"recall@20": Measured(0.21), "ndcg@20": Measured(0.19), "precision@50": Measured(0.1)},
)  # fmt: skip


def test_a_fit_shows_the_numbers_of_all_tables_that_it_serves(home):
    rows = [row for row in rows_of(paper_tables(home)) if row.arm.label == "EASE"]
    tags = published_tags(RECORD, rows)
    assert tags["rankbench.table"] == "toy/1, toy/2"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in tags["mlflow.note.content"].splitlines()]
    assert lines[0] == ["table", "row", "metric", "published", "measured", "difference"]
    assert lines[2:] == [
        ["toy/1", "EASE", "recall@20", "0.2000", "0.2100", "+5.0 %"],
        ["toy/1", "EASE", "ndcg@20", "0.2000", "0.1900", "-5.0 %"],
        ["toy/2", "EASE", "precision@50", "0.1000", "0.1000", "+0.0 %"],
    ]


def test_a_draw_of_a_search_is_not_compared_with_numbers_of_test(home):
    row = next(rows_of(paper_tables(home)))
    assert published_tags(replace(RECORD, measured_on="valid"), [row]) == {"rankbench.table": "toy/1"}
    assert published_tags(replace(RECORD, status="failed"), [row]) == {"rankbench.table": "toy/1"}
    assert published_tags(RECORD, []) == {}


def test_no_difference_is_shown_from_numbers_of_other_data(toy):
    arms = "arms: [{name: EASE, method: ease, params: {lam: 10}, published: {synthetic: {recall@20: 0.2}}}]"
    (row,) = rows_of(toy(arms, datasets=[{"name": "synthetic", "stand_in": "other users"}]))
    line = published_tags(RECORD, [row])["mlflow.note.content"].splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["toy/2, a stand-in", "EASE", "recall@20", "0.2000", "0.2100", ""]
