"""What MLflow shows of a record: the name, tags, parameters, metrics and data of its run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rankbench.core.display import setting_text
from rankbench.core.palette import colour_of_name
from rankbench.tracking.mlflow_internals import COLOUR
from rankbench.tracking.record import RunRecord

CHANGED = "+changes"  # the end of a revision of code that differs from its commit
CONTEXT = "mlflow.data.context"
VERDICT = "rankbench.verdict"  # the tag with what the tests of a sweep say of an arm
LONGEST = 200  # characters of a name


def metric_key(prefix: str, name: str) -> str:
    """Return a name that MLflow accepts: recall@20 on test is test/recall_at_20. Special characters except - . : / become _."""
    return re.sub(r"[^\w\-. :/]", "_", f"{prefix}/{name.replace('@', '_at_')}", flags=re.ASCII)


def run_name(record: RunRecord, named: Iterable[str] = (), dataset: bool = False, split: bool = False) -> str:
    """Return the name of a run: its arm, its setting, and its seed.

    `named`: parameters that distinguish the runs of an arm. `dataset` and `split`: also name the dataset and the seed of the
    split. A final run has the setting that the search chose for its arm, so that its seed is enough.
    """
    words = [record.dataset.name] if dataset else []
    words.append(record.label)
    if record.stage != "final":
        words.append(setting_text({name: value for name in named if (value := record.params.get(name)) is not None}))
    if split and record.dataset.fingerprint:
        words.append(f"split {record.dataset.split_seed}")
    if record.stage != "search":
        words.append(f"seed {record.seed}")
    return " ".join(word for word in words if word)[:LONGEST]


def record_tags(record: RunRecord, folder: Path) -> dict[str, str]:
    """Return the tags of a record in `folder`; those that are unknown are left out."""
    environment = record.environment
    always = {
        "rankbench.run": record.id,
        "rankbench.stage": record.stage,
        "rankbench.arm": record.label,
        "rankbench.method": record.method,
        "rankbench.dataset": record.dataset.name,
        "rankbench.seed": str(record.seed),
        "rankbench.config_hash": config_hash(record),
        "rankbench.measured_on": record.measured_on,
        "rankbench.fit_on": record.fit_on,
        "rankbench.machine": _facts(environment.get("machine", {})),
        "rankbench.versions": _facts(environment.get("packages", {})),
        "rankbench.record": str(folder),
        COLOUR: colour_of_name(record.method),  # unless its sweep gives it another
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
        "rankbench.device": record.device if record.finished else None,  # of others it is not known
        "rankbench.threads": record.threads or None,
        "rankbench.iterations": record.iterations,  # of the model that was kept
        "rankbench.fit_shared_by": record.fit_shared_by
        if record.fit_shared_by > 1
        else None,  # settings, of which each has its time
        "rankbench.same_as": record.same_as,
        "rankbench.started_at": record.started_at,
        "rankbench.lists": record.lists and f"{record.lists.file}, sha256 {record.lists.sha256}",
        "rankbench.error": record.error,
        "rankbench.count_differences": "; ".join(data.differences)[:5000],
    }
    return always | {key: str(value) for key, value in known.items() if value not in (None, "")}


def _facts(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value is not None)


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
    metrics |= {} if record.joules is None else {"energy/joules": record.joules}
    return metrics | {"peak_memory_gb": record.peak_memory_bytes / 1e9}


def dataset_inputs(record: RunRecord) -> list[Any]:
    """Return one MLflow DatasetInput per part, empty if the run ended before its data were known.

    The digest is the fingerprint of the prepared data. MLflow takes inputs of equal name and digest for one, so that each part
    has a name of its own.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = record.dataset
    if not data.fingerprint:
        return []
    files = [{name: str(source[name]) for name in ("file", "sha256", "origin") if source.get(name)} for source in data.sources]
    source = json.dumps({"files": files, "protocol": data.protocol, "split_seed": data.split_seed})
    profile = json.dumps(data.counts)
    contexts = [(part, "train") for part in record.fit_on.split("+")] + [(record.measured_on, record.measured_on)]
    return [
        DatasetInput(
            Dataset(f"{data.name} {part}", data.fingerprint[:36], "rankbench", source, profile=profile),
            [InputTag(CONTEXT, context)],
        )
        for part, context in dict.fromkeys(contexts)
    ]
