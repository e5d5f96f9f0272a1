"""What MLflow shows of a fit beside its metrics: the published numbers of the rows that it serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankbench.judge.printing import number, percent
from rankbench.reports.markdown import table
from rankbench.reproduce.required_fits import PaperRow
from rankbench.reproduce.training import training_of_record
from rankbench.tracking.record import RunRecord


def published_tags(record: RunRecord, rows: Sequence[PaperRow]) -> dict[str, str]:
    """Return the tags of the MLflow run of a record that serves `rows`: the names of their tables and, if it was measured on
    test, a description in Markdown. It says where a row has a stand-in instead of the paper's data.
    """
    if not rows:
        return {}
    tags = {"rankbench.table": ", ".join(dict.fromkeys(row.table.name for row in rows))}
    if record.finished and record.measured_on == "test":
        lines = [line for row in rows for line in _lines(record, row)]
        note = table(["table", "row", "metric", "published", "measured", "difference"], lines)
        trained = dict.fromkeys(str(training_of_record(record, row) or "") for row in rows)
        tags["mlflow.note.content"] = "\n\n".join([note, *(f"Training: {each}." for each in trained if each)])
    return tags


def beside_published(record: RunRecord, row: PaperRow) -> Iterator[tuple[str, float, float, str]]:
    """Yield each metric that a row publishes and a record has: the published number, the measured mean, and the difference in
    percent, empty beside a stand-in.
    """
    for name in (name for name in row.published if name in record.metrics):
        value, mean = row.published[name], record.metrics[name].mean
        yield name, value, mean, "" if row.stand_in or not value else percent(mean / value - 1, "+.1f")


def _lines(record: RunRecord, row: PaperRow) -> list[list[str]]:
    where = f"{row.table.name}, a stand-in" if row.stand_in else row.table.name
    beside = beside_published(record, row)
    return [[where, row.arm.label, name, number(value), number(mean), difference] for name, value, mean, difference in beside]
