"""Write messages to MLflow as runs. What an earlier delivery has sent is recognised, and nothing is sent twice."""

from __future__ import annotations

import hashlib
import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from rankbench.tracking.record import RunRecord, read_record
from rankbench.tracking.spool import Message, RunMessage, SweepEnd, SweepStart

PARENT = "mlflow.parentRunId"
STATUS = {"finished": "FINISHED", "stopped": "KILLED"}  # status of a record → of a run; any other is FAILED


def metric_key(prefix: str, name: str) -> str:
    """Return a name that MLflow accepts: recall@20 on test is test/recall_at_20. Special characters except - . : / become _."""
    return re.sub(r"[^\w\-. :/]", "_", f"{prefix}/{name.replace('@', '_at_')}", flags=re.ASCII)


class MlflowRuns:
    """Writes messages to the store of `client`. Records and reports are read from the results folder `root`.

    `artifacts`: folder for the files of new experiments; None if the server chooses it.
    """

    def __init__(self, client: Any, root: Path, artifacts: Path | None):
        self.client, self.root, self.artifacts = client, root, artifacts
        self._experiments: dict[str, str] = {}
        self._sweeps: dict[tuple[str, str], Any] = {}

    def take(self, message: Message) -> None:
        """Write the message to the store. Raises DataError if its record is missing or damaged, and errors of MLflow."""
        match message:
            case RunMessage():
                folder = self.root / message.record
                self._run(message, read_record(folder), folder)
            case SweepStart():
                self._start(message)
            case SweepEnd():
                self._end(message)

    def _run(self, message: RunMessage, record: RunRecord, folder: Path) -> None:
        from mlflow.entities import RunTag

        parent = self._sweep(message).info.run_id if message.sweep else None
        # The time of the run, not of its delivery, so that a metric sent twice is the same metric.
        started = int(datetime.fromisoformat(record.started_at).timestamp() * 1000) if record.started_at else message.time
        ended = started + int(1000 * sum(record.seconds.values()))
        status = STATUS.get(record.status, "FAILED")
        experiment = self._experiment(message.experiment)
        run = self._find(experiment, "rankbench.run", record.id, parent)
        if run is not None and run.info.status == status:
            return
        tags = _tags(record, folder) | message.tags
        if run is None:
            shown = {name: record.params[name] for name in message.named if name in record.params} or record.params
            name = f"{record.stage} {record.arm or record.method} {_short(shown)}".strip()[:200]
            own = {PARENT: parent} if parent else {}
            run = self.client.create_run(experiment, start_time=started, run_name=name, tags=tags | own)
        elif record.finished and "rankbench.error" in run.data.tags:
            # It failed before, when fewer tags were known, and was run again.
            self.client.delete_tag(run.info.run_id, "rankbench.error")
            self.client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        run_id = run.info.run_id
        params = {"method": record.method, "dataset": record.dataset.name, "seed": record.seed, "dtype": record.dtype}
        self._log(run_id, _metrics(record), params | record.params, ended)
        self._log_curve(run_id, record, started)
        for path in sorted(folder.glob("*")):
            # A search has many runs, so their per-user metrics are not sent.
            if path.suffix == ".json" or record.stage != "search":
                self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id, status, end_time=ended)
        # A slow server may have carried out a request after its timeout: `_find` deletes such duplicates.
        self._find(experiment, "rankbench.run", record.id, parent)

    def _log_curve(self, run_id: str, record: RunRecord, started: int) -> None:
        """Log one point per iteration, dated by its training seconds: MLflow's time axis then shows them without evaluation."""
        from mlflow.entities import Metric

        points = []
        for row in record.curve:
            at, step = started + int(1000 * row["seconds"]), int(row["iteration"])
            values = {name: value for name, value in row.items() if name not in ("iteration", "seconds")}
            points += [
                Metric(metric_key("curve", name), value, at, step) for name, value in values.items() if math.isfinite(value)
            ]
        for start in range(0, len(points), 1000):
            self.client.log_batch(run_id, metrics=points[start : start + 1000])

    def _start(self, message: SweepStart) -> None:
        run = self._sweep(message, message.tags)
        self.client.update_run(run.info.run_id, status="RUNNING")
        if question := message.tags.get("rankbench.question"):
            # The list of experiments shows it beside the name.
            self.client.set_experiment_tag(run.info.experiment_id, "mlflow.note.content", question)
        if not run.data.params:
            self._log(run.info.run_id, {}, message.params, message.time)

    def _end(self, message: SweepEnd) -> None:
        run_id = self._sweep(message).info.run_id
        self._log(run_id, message.metrics, {}, message.time)
        if message.note:
            self.client.set_tag(run_id, "mlflow.note.content", message.note[:8000])
        for path in (self.root / name for name in message.files):
            if path.is_file():
                self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id, "FINISHED" if message.ok else "FAILED", end_time=message.time)

    def _sweep(self, message: Message, tags: dict[str, str] | None = None) -> Any:
        """Return the parent run of a sweep, created if the message of its start was lost."""
        key = (message.experiment, message.sweep)
        if key not in self._sweeps:
            experiment = self._experiment(message.experiment)
            run = self._find(experiment, "rankbench.sweep", message.sweep, None)
            self._sweeps[key] = run or self.client.create_run(
                experiment,
                start_time=message.time,
                run_name=message.sweep,
                tags=(tags or {}) | {"rankbench.sweep": message.sweep},
            )
        return self._sweeps[key]

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            existing = self.client.get_experiment_by_name(name)
            self._experiments[name] = existing.experiment_id if existing is not None else self._new_experiment(name)
        return self._experiments[name]

    def _new_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        location = (self.artifacts / name).resolve().as_uri() if self.artifacts is not None else None
        # The kind decides which pages MLflow shows: here those of trained models, not of conversations.
        kind = {"mlflow.experimentKind": "custom_model_development"}
        try:
            return self.client.create_experiment(name, artifact_location=location, tags=kind)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        # The uploader of another results folder was faster.
        return self.client.get_experiment_by_name(name).experiment_id

    def _find(self, experiment: str, tag: str, value: str, parent: str | None) -> Any:
        """Return the run with this tag under the same parent. Of several, keeps the most complete and deletes the others."""
        runs = self.client.search_runs([experiment], filter_string=f"tags.`{tag}` = '{value}'")
        runs = [run for run in runs if run.data.tags.get(PARENT) == parent]
        runs.sort(key=lambda run: (run.info.status != "RUNNING", len(run.data.params), len(run.data.metrics)))
        for duplicate in runs[:-1]:
            self.client.delete_run(duplicate.info.run_id)
        return runs[-1] if runs else None

    def _log(self, run_id: str, metrics: dict[str, float], params: dict[str, Any], time: int) -> None:
        from mlflow.entities import Metric, Param

        # An infinite value would be stored as 1.8e308 and ruin every plot.
        batch = [Metric(name, value, time, 0) for name, value in metrics.items() if math.isfinite(value)]
        words = [Param(name, str(value)[:6000]) for name, value in params.items() if value is not None]
        self.client.log_batch(run_id, metrics=batch, params=words)


def _tags(record: RunRecord, folder: Path) -> dict[str, str]:
    environment = record.environment
    always = {
        "rankbench.run": record.id,
        "rankbench.stage": record.stage,
        "rankbench.arm": record.arm or record.method,
        "rankbench.method": record.method,
        "rankbench.dataset": record.dataset.name,
        "rankbench.seed": str(record.seed),
        "rankbench.config_hash": config_hash(record),
        "rankbench.measured_on": record.measured_on,
        "rankbench.fit_on": record.fit_on,
        "rankbench.machine": str(environment.get("machine", "")),
        "rankbench.versions": str(environment.get("packages", "")),
        "rankbench.record": str(folder),
    }
    data = record.dataset
    known = {
        "rankbench.model": record.params.get("model"),
        "rankbench.protocol": data.protocol,
        "rankbench.split_seed": data.split_seed if data.fingerprint else None,
        "rankbench.fingerprint": data.fingerprint,
        "rankbench.stand_in": data.stand_in,
        "mlflow.source.git.commit": environment.get("revision"),
        "rankbench.same_as": record.same_as,
        "rankbench.error": record.error,
        "rankbench.count_differences": "; ".join(data.differences)[:5000],
    }
    return always | {key: str(value) for key, value in known.items() if value not in (None, "")}


def config_hash(record: RunRecord) -> str:
    """Return a hash of setting and dataset, which search, final run and repetitions with other seeds share."""
    content = [record.method, record.params, record.dtype, record.dataset.name]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _metrics(record: RunRecord) -> dict[str, float]:
    metrics = {metric_key(record.measured_on, name): value.mean for name, value in record.metrics.items()}
    metrics |= {f"seconds/{phase}": value for phase, value in record.seconds.items()}
    return metrics | {"peak_memory_gb": record.peak_memory_bytes / 1e9}


def _short(params: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
        if value is not None
    )
