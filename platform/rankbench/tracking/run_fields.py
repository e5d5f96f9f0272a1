"""What MLflow shows of a record: tags, parameters and metrics of its run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_names import metric_key

CHANGED = "+changes"  # the end of a revision of code that differs from its commit


def record_tags(record: RunRecord, folder: Path) -> dict[str, str]:
    """Return the tags of a record in `folder`; those that are unknown are left out."""
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
    data, revision = record.dataset, environment.get("revision") or ""
    known = {
        "rankbench.model": record.params.get("model"),
        "rankbench.protocol": data.protocol,
        "rankbench.split_seed": data.split_seed if data.fingerprint else None,
        "rankbench.fingerprint": data.fingerprint,
        "rankbench.stand_in": data.stand_in,
        "mlflow.source.git.commit": revision.removesuffix(CHANGED),
        "rankbench.uncommitted_changes": "true" if revision.endswith(CHANGED) else None,
        "rankbench.workers": record.workers if record.workers > 1 else None,
        "rankbench.same_as": record.same_as,
        "rankbench.started_at": record.started_at,
        "rankbench.error": record.error,
        "rankbench.count_differences": "; ".join(data.differences)[:5000],
    }
    return always | {key: str(value) for key, value in known.items() if value not in (None, "")}


def config_hash(record: RunRecord) -> str:
    """Return a hash of setting and dataset, which search, final run and repetitions with other seeds share."""
    content = [record.method, record.params, record.dtype, record.dataset.name]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def record_params(record: RunRecord, used: Iterable[str] | None) -> dict[str, Any]:
    """Return what the run was given: the parameters in `used` (None: all), the method, the data and the seeds."""
    wanted = record.params if used is None else {name: record.params[name] for name in used if name in record.params}
    own = {"method": record.method, "dataset": record.dataset.name, "seed": record.seed, "dtype": record.dtype}
    return own | ({"split_seed": record.dataset.split_seed} if record.dataset.fingerprint else {}) | wanted


def record_metrics(record: RunRecord, first: str = "") -> dict[str, float]:
    """Return the metrics by name, such as test/ndcg_at_20, with seconds by phase and the peak memory; `first` comes first."""
    names = sorted(record.metrics, key=lambda name: name != first)
    metrics = {metric_key(record.measured_on, name): record.metrics[name].mean for name in names}
    metrics |= {f"seconds/{phase}": value for phase, value in record.seconds.items()}
    if unknown := record.users.get("without_history"):
        metrics["users_without_history"] = unknown
        groups = record.groups if record.dataset.cold_users == "keep" else {}  # else they do not depend on the method
        for group, means in groups.items():
            metrics |= {f"{metric_key(record.measured_on, name)}_{group}": mean for name, mean in means.items()}
    return metrics | {"peak_memory_gb": record.peak_memory_bytes / 1e9}
