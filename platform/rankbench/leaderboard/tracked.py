"""An entry of a leaderboard as a run in MLflow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rankbench.core.environment import Environment
from rankbench.core.palette import colour_of_name
from rankbench.leaderboard.results import Result
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_internals import COLOUR
from rankbench.tracking.mlflow_sink import MlflowSink, tracking_uri
from rankbench.tracking.run_fields import metric_key
from rankbench.tracking.saved_views import standing_view

EXPERIMENT = "leaderboard"  # in MLflow


def sink_of(environment: Environment, labels: Labels, warn: Callable[[str], None]) -> MlflowSink:
    """Return what sends entries to MLflow. Raises ConfigError for a wrong address of its store."""
    return MlflowSink(tracking_uri(environment), EXPERIMENT, environment.results / "mlartifacts", warn, labels=labels)


def describe(sink: MlflowSink) -> None:
    """Give the experiment of the leaderboard its view and its question."""
    view = standing_view(EXPERIMENT, f"tags.`rankbench.run` LIKE '{EXPERIMENT} %'", curves=False)
    sink.describe(view, "Which method is best on each dataset, when all have the same time to search and fit?")


def send(sink: MlflowSink, result: Result) -> None:
    """Send an entry: the chosen setting as parameters, metrics on test, the value on the validation set, and seconds."""
    metrics = {metric_key("test", name): mean for name, (mean, _, _) in result.metrics.items()}
    metrics |= {f"seconds/{name}": value for name, value in result.seconds.items()}
    metrics |= {"peak_memory_gb": result.peak_memory_gb, "settings_tried": float(result.tried)} if result.finished else {}
    if result.valid is not None:
        metrics[metric_key("valid", result.metric)] = result.valid
    about = {"dataset": result.dataset, "method": result.entrant, "budget": result.allowed}
    tags = {f"rankbench.{name}": value for name, value in about.items()}
    known = {"fingerprint": result.fingerprint, "revision": result.revision or "", "cpu": result.cpu, "status": result.status}
    tags |= {f"rankbench.{name}": value for name, value in known.items() if value} | {COLOUR: colour_of_name(result.entrant)}
    sink.send_entry(
        id=f"{EXPERIMENT} {result.dataset} {result.entrant} {result.allowed} {result.started_at}",
        name=f"{result.dataset} {result.entrant} {result.allowed}",
        tags=tags,
        params=about | {name: str(value) for name, value in result.params.items()},
        metrics=metrics,
        started=int(datetime.fromisoformat(result.started_at).timestamp() * 1000),
        seconds=result.seconds.get("all", result.budget),
        reason="" if result.finished else f"{result.status}: {result.reason}",
    )
