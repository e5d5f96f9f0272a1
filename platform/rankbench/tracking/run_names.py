"""The names of runs in MLflow, in which arms, settings and seeds can be told apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rankbench.tracking.record import RunRecord

LONGEST = 200


def metric_key(prefix: str, name: str) -> str:
    """Return a name that MLflow accepts: recall@20 on test is test/recall_at_20. Special characters except - . : / become _."""
    return re.sub(r"[^\w\-. :/]", "_", f"{prefix}/{name.replace('@', '_at_')}", flags=re.ASCII)


def run_name(record: RunRecord, named: Iterable[str] = (), dataset: bool = False, split: bool = False) -> str:
    """Return the name of a run: its arm, its setting, and its seed.

    `named`: parameters that distinguish the runs of an arm. `dataset` and `split`: also name the dataset and the seed of the
    split. A final run has the setting that the search chose for its arm, so that its seed is enough.
    """
    words = [record.dataset.name] if dataset else []
    words.append(record.arm or record.method)
    if record.stage != "final":
        words.append(_short({name: record.params[name] for name in named if name in record.params}))
    if split and record.dataset.fingerprint:
        words.append(f"split {record.dataset.split_seed}")
    if record.stage != "search":
        words.append(f"seed {record.seed}")
    return " ".join(word for word in words if word)[:LONGEST]


def _short(params: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
        if value is not None
    )
