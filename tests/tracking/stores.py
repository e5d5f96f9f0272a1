"""What tests of tracking share: sinks on a store, and the whole content of a store for comparison."""

import dataclasses
import random
import socket
import sqlite3
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import sqlalchemy

from rankbench.tracking.delivery import Delivery
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord, write_record
from rankbench.tracking.uploader import Uploader

from .test_record import RECORD

TABLES = {
    "runs": "run_uuid, experiment_id, status, start_time, end_time, lifecycle_stage",
    "metrics": "run_uuid, key, value, timestamp, step",
    "params": "run_uuid, key, value",
    "tags": "run_uuid, key, value",
}


def sink_on(root: Path, experiment: str, lines: list[str] | None = None, uri: str | None = None) -> MlflowSink:
    """A sink on the SQLite store under `root`, or on another store with its spool there."""
    warn = (lines if lines is not None else []).append
    return MlflowSink(uri or f"sqlite:///{root}/mlflow.db", experiment, root / "artifacts", warn)


def records(n: int, **changes) -> list[RunRecord]:
    return [
        dataclasses.replace(RECORD, id=f"run-x-ease-{i}", params={"lam": float(i)}, seconds={"fit": 0.5 + i},
                            started_at="2026-01-02T03:04:05+00:00", **changes)
        for i in range(n)
    ]  # fmt: skip


def sweep(sink: MlflowSink, name: str, n: int) -> None:
    """All that a sweep of `n` runs tells its sink, which needs not be open."""
    sink.start_sweep(name, {"fits": n}, {"rankbench.question": "which?"})
    for record in records(n):
        sink.send(record, write_record(sink.artifacts.parent / "sweeps" / name / "records", record, None))
    sink.finish_sweep([], ok=True, note="a table")


def spooled(root: Path) -> list[str]:
    """Names of the messages that wait."""
    return sorted(path.name for path in (root / "spool").glob("[!.]*.json"))


def free_port() -> int:
    """A port of loopback where nobody listens, below those that the system gives to whoever asks for any."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def deliver(root: Path, uri: str | None = None) -> tuple[int, str]:
    """What `rankbench tracking sync` does; returns how many messages are left, and why."""
    delivery = Delivery(uri or f"sqlite:///{root}/mlflow.db", root / "artifacts", queue=False)
    delivery.start()
    return delivery.finish(lambda: len(spooled(root)), 60.0, 200.0), delivery.reason


def deliver_here(root: Path) -> list[dict]:
    """Do in this process what the uploader of `tracking sync --all` does in its own; returns its events."""
    (ended := threading.Event()).set()
    order = {"uri": f"sqlite:///{root}/mlflow.db", "artifacts": str(root / "artifacts"), "queue": False, "every": True}
    events: list[dict] = []
    Uploader(order, ended, lambda **event: events.append(event)).work()
    return events


def content(database: Path) -> dict[str, list[tuple]]:
    """Every row of the store that is about runs, sorted."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return {name: sorted(connection.execute(f"SELECT {columns} FROM {name}")) for name, columns in TABLES.items()}


def run_tags(database: Path, tag: str) -> list[str]:
    """The values of a tag over the runs that are not deleted."""
    query = "SELECT value FROM tags JOIN runs USING (run_uuid) WHERE key = ? AND lifecycle_stage = 'active'"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return sorted(value for (value,) in connection.execute(query, (tag,)))


def with_curves(of: list[RunRecord], points: int) -> list[RunRecord]:
    """The same records as of a method that goes by iterations, each with numbers of its own."""
    return [
        dataclasses.replace(record, curve=[{"iteration": n, "seconds": n / 4, "loss": 1 / n + i, "ndcg@20": n / 100 - i}
                                           for n in range(1, points + 1)])
        for i, record in enumerate(of)
    ]  # fmt: skip


def told(record: RunRecord) -> list[tuple]:
    """Every metric that a record must be shown with: key, step, value."""
    at_end = {"test/ndcg_at_20": record.metrics["ndcg@20"].mean, "seconds/fit": record.seconds["fit"], "peak_memory_gb": 0.0}
    keys = {"loss": "loss", "seconds": "seconds", "ndcg@20": "ndcg_at_20"}
    curve = [(f"curve/{key}", row["iteration"], row[name]) for row in record.curve for name, key in keys.items()]
    return sorted([(name, 0, value) for name, value in at_end.items()] + curve)


def stored(uri: str, experiment: str) -> dict[str, tuple[str, list[tuple]]]:
    """Of any database: status and all metrics of each record's run, read without MLflow. Two runs of one record fail."""
    names, found, engine = {}, defaultdict(list), sqlalchemy.create_engine(uri)
    with engine.connect() as connection:
        query = (
            "SELECT runs.run_uuid, status, tags.value FROM runs JOIN tags ON runs.run_uuid = tags.run_uuid"
            " JOIN experiments ON experiments.experiment_id = runs.experiment_id AND experiments.name = :experiment"
            " WHERE tags.key = 'rankbench.run' AND runs.lifecycle_stage = 'active'"
        )
        runs = connection.execute(sqlalchemy.text(query), {"experiment": experiment}).all()
        for run, key, step, value in connection.execute(sqlalchemy.text("SELECT run_uuid, key, step, value FROM metrics")):
            found[run].append((key, step, value))
    engine.dispose()
    for run, status, record in runs:
        assert record not in names, f"{record} is there twice"
        names[record] = (status, sorted(found[run]))
    return names
