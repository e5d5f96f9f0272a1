"""Records as MLflow runs: a view for browsing, sent from the driver alone, and never a reason for a run to fail."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from rankbench.settings import Settings
from rankbench.tracking.record import RunRecord

log = logging.getLogger(__name__)


def tracking_uri(settings: Settings) -> str:
    """RANKBENCH_TRACKING_URI, or the SQLite store under the results folder."""
    return settings.tracking_uri or f"sqlite:///{settings.results / 'mlflow.db'}"


def metric_key(prefix: str, name: str) -> str:
    """A name that MLflow takes: recall@20 on test is test/recall_at_20, and other signs than - . : / become _."""
    return re.sub(r"[^\w\-. :/]", "_", f"{prefix}/{name.replace('@', '_at_')}", flags=re.ASCII)


@dataclass
class MlflowSink:
    """Sends records to the store at `uri`. The first failure warns and ends the sending; the records stay on disk.

    A record is sent once: a run that carries its id in the tag rankbench.run is left as it is.
    """

    uri: str
    experiment: str
    artifacts: Path
    warn: Callable[[str], None] = log.warning
    _client: Any = None
    _experiment_id: str = ""
    _broken: bool = False
    _parent: str | None = None
    _sent: set[str] = field(default_factory=set)

    def open(self) -> bool:
        """Connect, create the store and the experiment; False, with one warning, when that fails."""
        return self._safely(self._open)

    def start_sweep(self, sweep_id: str, params: dict[str, Any], tags: dict[str, str]) -> None:
        """The parent run of all that follows; on resume, the one of before."""
        self._safely(self._start_sweep, sweep_id, params, tags)

    def send(self, record: RunRecord, folder: Path) -> None:
        """One record as a run, under the parent where there is one."""
        if record.id not in self._sent:
            self._sent.add(record.id)
            self._safely(self._send, record, folder)

    def finish_sweep(self, metrics: dict[str, float], files: list[Path], ok: bool, note: str = "") -> None:
        """Close the parent run, with its headline metrics, report files and a description in Markdown."""
        self._safely(self._finish_sweep, metrics, files, ok, note)

    def _safely(self, call: Callable[..., None], *arguments: Any) -> bool:
        if self._broken:
            return False
        try:
            call(*arguments)
            return True
        except Exception as error:
            self._broken = True
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.warn(f"tracking at {self.uri} failed ({reason}); results are complete on disk, MLflow shows a part of them")
            return False

    def _open(self) -> None:
        # Set before the import, which reads them: a dead server may cost seconds, not minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        warnings.filterwarnings("ignore", module="mlflow")
        from mlflow.tracking import MlflowClient

        # After the import, which sets levels of its own.
        for name in ("mlflow", "mlflow.store.db.utils", "alembic", "alembic.runtime.migration"):
            logging.getLogger(name).setLevel(logging.ERROR)

        local = self.uri.startswith("sqlite:///")
        self.artifacts.parent.mkdir(parents=True, exist_ok=True)
        # The first use of a store makes its tables; two processes at once would break each other's.
        with FileLock(self.artifacts.parent / ".mlflow.lock"):
            self._client = MlflowClient(tracking_uri=self.uri)
            found = self._client.get_experiment_by_name(self.experiment)
            if found is not None:
                self._experiment_id = found.experiment_id
                return
            location = (self.artifacts / self.experiment).resolve().as_uri() if local else None
            # The kind decides which pages MLflow opens: these are trained models, not conversations.
            kind = {"mlflow.experimentKind": "custom_model_development"}
            self._experiment_id = self._client.create_experiment(self.experiment, artifact_location=location, tags=kind)

    def _find(self, tag: str, value: str) -> Any:
        parent = f" and tags.`mlflow.parentRunId` = '{self._parent}'" if self._parent else ""
        query = f"tags.`{tag}` = '{value}'{parent}"
        found = self._client.search_runs([self._experiment_id], filter_string=query, max_results=1)
        return found[0] if found else None

    def _start_sweep(self, sweep_id: str, params: dict[str, Any], tags: dict[str, str]) -> None:
        found = self._find("rankbench.sweep", sweep_id)
        if found is not None:
            self._parent = found.info.run_id
            self._client.update_run(self._parent, status="RUNNING")
            return
        run = self._client.create_run(self._experiment_id, run_name=sweep_id, tags=tags | {"rankbench.sweep": sweep_id})
        self._parent = run.info.run_id
        self._log(self._parent, {}, params)

    def _send(self, record: RunRecord, folder: Path) -> None:
        if self._parent is not None and self._find("rankbench.run", record.id) is not None:
            return
        environment = record.environment
        tags = {
            "rankbench.run": record.id,
            "rankbench.stage": record.stage,
            "rankbench.arm": record.arm or record.method,
            "rankbench.dataset": record.dataset["name"],
            "rankbench.fingerprint": record.dataset.get("fingerprint", ""),
            "rankbench.measured_on": record.measured_on,
            "rankbench.fit_on": record.fit_on,
            "rankbench.machine": str(environment.get("machine", "")),
            "rankbench.versions": str(environment.get("packages", "")),
            "rankbench.record": str(folder),
            "mlflow.source.git.commit": environment.get("revision") or "",
        }
        optional = {
            "mlflow.parentRunId": self._parent,
            "rankbench.same_as": record.same_as,
            "rankbench.error": record.error,
        }
        tags |= {key: value for key, value in optional.items() if value}
        differences = record.dataset.get("differences")
        if differences:
            tags["rankbench.count_differences"] = "; ".join(differences)[:5000]
        name = f"{record.stage} {record.arm or record.method} {_short(record.params)}".strip()
        # The run's own time, not that of its sending.
        start = int(datetime.fromisoformat(record.started_at).timestamp() * 1000) if record.started_at else None
        run = self._client.create_run(self._experiment_id, run_name=name[:200], tags=tags, start_time=start)
        run_id, end = run.info.run_id, start and start + int(1000 * sum(record.seconds.values()))
        metrics = {metric_key(record.measured_on, name): value["mean"] for name, value in record.metrics.items()}
        metrics |= {f"seconds/{phase}": value for phase, value in record.seconds.items()}
        metrics["peak_memory_gb"] = record.peak_memory_bytes / 1e9
        params = {
            "method": record.method,
            "dataset": record.dataset["name"],
            "seed": record.seed,
            "dtype": record.dtype,
        }
        self._log(run_id, metrics, params | record.params)
        for path in sorted(folder.glob("*")):
            # A search has many runs: their per-user metrics stay with the record.
            if path.suffix == ".json" or record.stage != "search":
                self._client.log_artifact(run_id, str(path))
        self._client.set_terminated(run_id, "FINISHED" if record.finished else "FAILED", end_time=end)

    def _finish_sweep(self, metrics: dict[str, float], files: list[Path], ok: bool, note: str) -> None:
        self._log(self._parent, metrics, {})
        if note:
            self._client.set_tag(self._parent, "mlflow.note.content", note[:8000])
        for path in files:
            self._client.log_artifact(self._parent, str(path))
        self._client.set_terminated(self._parent, "FINISHED" if ok else "FAILED")

    def _log(self, run_id: str, metrics: dict[str, float], params: dict[str, Any]) -> None:
        import time

        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        # An infinite value would be stored as 1.8e308 and ruin every plot.
        batch = [Metric(name, value, now, 0) for name, value in metrics.items() if math.isfinite(value)]
        words = [Param(name, str(value)[:6000]) for name, value in params.items() if value is not None]
        self._client.log_batch(run_id, metrics=batch, params=words)


def _short(params: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
        if value is not None
    )


def serve_command(uri: str, artifacts: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command and environment of an MLflow server on loopback that shows the store at `uri`."""
    import sys

    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--uvicorn-opts",
        "--log-level warning",
        "--backend-store-uri",
        uri,
        "--default-artifact-root",
        artifacts.resolve().as_uri(),
    ]
    hardening = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    return command, os.environ | hardening
