"""An entry of a leaderboard as a run in MLflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankbench.core.palette import colour_of_name
from rankbench.fitting.drive import Row
from rankbench.leaderboard.entry import EntryJob
from rankbench.leaderboard.milestones import name_of
from rankbench.leaderboard.results import Result
from rankbench.sweeps.units import Unit
from rankbench.tracking.mlflow_internals import COLOUR
from rankbench.tracking.mlflow_runs import ENTRY
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import metric_key
from rankbench.tracking.saved_views import standing_view
from rankbench.tracking.spool import milliseconds

EXPERIMENT = "leaderboard"  # in MLflow


def describe(sink: MlflowSink) -> None:
    """Give the experiment of the leaderboard its view and its question."""
    view = standing_view(EXPERIMENT, f"tags.`rankbench.run` LIKE '{EXPERIMENT} %'", curves=False)
    sink.describe(view, "Which method is best on each dataset, when all have the same time to search and fit?")


def send(sink: MlflowSink, result: Result, curve: Sequence[Row] = ()) -> None:
    """Send an entry: the chosen setting as parameters, metrics on test, the value on the validation set, and seconds; and the
    `curve` of its search.
    """
    metrics = {metric_key("test", name): mean for name, (mean, _, _) in result.metrics.items()}
    metrics |= {f"seconds/{name}": value for name, value in result.seconds.items()}
    metrics |= {"peak_memory_gb": result.peak_memory_gb, "settings_tried": float(result.tried)} if result.finished else {}
    metrics |= {metric_key("default", result.metric): result.default[result.metric]} if result.default else {}
    metrics |= {} if result.joules is None else {"energy/joules": result.joules}
    if result.valid is not None:
        metrics[metric_key("valid", result.metric)] = result.valid
    shown = _shown(result.dataset, result.entrant, result.allowed, result.started_at, result.fingerprint)
    known = {"revision": result.revision or "", "cpu": result.cpu, "status": result.status, "ended": result.ended}
    known |= {"threads": result.threads, "precision": result.precision, "search": result.search, "rules": result.rules}
    shown["tags"] |= {f"rankbench.{name}": str(value) for name, value in known.items() if value}
    shown["params"] |= {name: str(value) for name, value in result.params.items()}
    sink.send_entry(
        **shown,
        metrics=metrics,
        rows=[*curve],
        seconds=result.seconds.get("all", result.budget),
        reason="" if result.finished else f"{result.status}: {result.reason}",
    )


def follow(sink: MlflowSink, unit: Unit, record: RunRecord) -> Callable[[Sequence[Row]], None]:
    """Return what takes new rows of the curve of an entry's search, for the run that `send` completes."""
    job, data = unit.job, record.dataset
    assert isinstance(job, EntryJob), "an entry is followed"
    return sink.follow_entry(**_shown(data.name, job.entrant.name, name_of(job.milestone), record.started_at, data.fingerprint))


def _shown(dataset: str, entrant: str, allowed: str, started_at: str, fingerprint: str) -> dict[str, Any]:
    """What is known of the run of an entry from its beginning."""
    about = {"dataset": dataset, "method": entrant, "budget": allowed}
    known = about | {"fingerprint": fingerprint}
    own = {COLOUR: colour_of_name(entrant), ENTRY: f"{dataset} {entrant} {allowed}"}
    return {
        "id": f"{EXPERIMENT} {dataset} {entrant} {allowed} {started_at}",
        "name": f"{dataset} {entrant} {allowed}",
        "tags": {f"rankbench.{name}": value for name, value in known.items() if value} | own,
        "params": about,
        "started": milliseconds(started_at),
    }
