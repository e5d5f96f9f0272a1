"""The arms of a sweep as runs in MLflow: means over seeds, with what the tests of the report say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rankbench.core.palette import run_colours
from rankbench.experiment.job import configure
from rankbench.judge.printing import listed
from rankbench.reports.rows import ReportRow
from rankbench.reports.tables import Table
from rankbench.schema.stored_sweep import StoredSweep
from rankbench.tracking.mlflow_internals import COLOUR
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import VERDICT, metric_key, record_params, record_tags
from rankbench.tracking.spool import milliseconds

OF_ONE_SEED = ("rankbench.run", "rankbench.seed", "rankbench.record", "rankbench.started_at", "rankbench.error")
OF_ONE_SPLIT = ("rankbench.split_seed", "rankbench.fingerprint")
BEST, TIED, WORSE = "best", "not significantly different from the best", "worse than the best"


def arm_runs(stored: StoredSweep, table: Table) -> list[dict[str, Any]]:
    """Return the arguments of `MlflowSink.send_arm` for each arm and dataset with final runs. `table` is that of the report."""
    colours = run_colours(arm.label for arm in stored.about.experiment.arms)
    several = len({row.dataset for row in table.rows}) > 1
    rows = {(row.dataset, row.arm): row for row in table.rows}
    found = []
    for entry in stored.rows:
        records = [stored.records[name] for name in entry.final if name in stored.records]
        if not records:
            continue
        finished = [record for record in records if record.finished]
        first, row = (finished or records)[0], rows[entry.dataset, entry.arm]
        seeds, splits = (listed(map(str, values)) for values in (row.seeds, row.split_seeds))
        used = configure(first.method, first.params, entry.arm).used
        params = record_params(first, used) | {"seed": seeds, "split_seed": splits}
        tags = record_tags(first, stored.folder)
        left_out = OF_ONE_SEED + OF_ONE_SPLIT * (len(row.split_seeds) > 1)
        tags = {name: value for name, value in tags.items() if name not in left_out}
        tags |= {"rankbench.stage": "arm", "rankbench.seeds": seeds, COLOUR: colours[entry.arm]}
        tags |= {VERDICT: verdict} if (verdict := verdict_of(table, row)) else {}
        found.append({
            "id": f"{entry.dataset} {entry.arm}",
            "name": f"{entry.dataset} {entry.arm}" if several else entry.arm,
            "seeds": [record.id for record in records],
            "tags": tags,
            "params": {name: str(value) for name, value in params.items() if value not in (None, "")},
            "metrics": _metrics(finished, row, table) if finished else {},
            "curve": mean_curve([record.curve for record in finished]),
            "started": min(milliseconds(record.started_at) if record.started_at else 0 for record in records),
            "seconds": fmean(sum(record.seconds.values()) for record in records),
            "reason": "" if finished else first.error or first.status,
        })  # fmt: skip
    return found


def verdict_of(table: Table, row: ReportRow) -> str:
    """Return what the conclusion of the report says of a row; empty if it was compared with no other."""
    for found in table.conclusions.datasets:
        if found.dataset == row.dataset and found.leader:
            words = {WORSE: found.behind, TIED: (*found.tied, *found.identical), BEST: (found.leader,)}
            return next((word for word, arms in words.items() if row.arm in arms), "")
    return ""


def mean_curve(curves: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Return the mean of curves at each iteration that all of them have, of what all of them have there."""
    by_step = [{row["iteration"]: row for row in curve} for curve in curves]
    steps = sorted(set.intersection(*map(set, by_step))) if by_step else []
    result = []
    for step in steps:
        rows = [each[step] for each in by_step]
        names = [name for name in rows[0] if all(name in row for row in rows)]
        result.append({name: fmean(row[name] for row in rows) for name in names})
    return result


def _metrics(records: Sequence[RunRecord], row: ReportRow, table: Table) -> dict[str, float]:
    """Return the means of all metrics, with intervals, deviations and p-values of those of the table; seconds, and memory."""
    metrics = dict[str, float]()
    for name in records[0].metrics:
        key, cell = metric_key(records[0].measured_on, name), row.cells.get(name)
        about = {"": cell.mean, "_low": cell.low, "_high": cell.high, "_std": cell.std} if cell else {}
        about = about or {"": fmean(record.metrics[name].mean for record in records)}
        metrics |= {key + end: value for end, value in about.items() if value is not None}
    for pair in table.differences:
        if (pair.dataset, pair.model) == (row.dataset, row.arm):
            # Both tests must be significant, so that the larger p-value decides.
            key = metric_key(records[0].measured_on, pair.metric)
            metrics[f"{key}_p_value"] = max(pair.p_bootstrap_holm, pair.p_wilcoxon_holm)
    metrics |= {f"seconds/{phase}": value for phase, value in row.seconds.items()}
    metrics |= {} if row.joules is None else {"energy/joules": row.joules}
    return metrics | {"peak_memory_gb": row.peak_memory_gb}
