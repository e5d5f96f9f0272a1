"""Register the models of a finished sweep in MLflow: the best final of each dataset, or that of each arm.

Final runs keep no model. Each is fitted again, which gives the scores of its first seed to the bit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from rankbench.api.arm_runs import verdict_of
from rankbench.api.fit_from import fit_from
from rankbench.api.register import register
from rankbench.api.results import Results
from rankbench.core.environment import Environment
from rankbench.core.errors import RankbenchError
from rankbench.core.markdown import without_tags
from rankbench.experiment.execution import Execution
from rankbench.judge.printing import interval, number
from rankbench.reports.rows import ReportRow
from rankbench.reports.tables import Table
from rankbench.schema.experiment import topic
from rankbench.schema.stored_sweep import StoredSweep
from rankbench.tracking.labels import Labels
from rankbench.tracking.model_registry import Registered
from rankbench.tracking.run_fields import VERDICT, metric_key


def register_arms(
    stored: StoredSweep, table: Table, which: str, environment: Environment, labels: Labels, warn: Callable[[str], None]
) -> list[Registered]:
    """Register the models of `which` arms, best or all, with their test metrics and their cards. `table` is that of the report.

    A model that cannot be fitted or registered is a warning with its cause, because the sweep is complete without it.
    """
    experiment, found = stored.about.experiment, []
    rows = [row for row in table.rows if row.runs and row.runs[0] in stored.records]
    several = len({row.dataset for row in rows}) > 1
    leaders = {each.dataset: each.leader for each in table.conclusions.datasets}
    for row in rows:
        if which == "best" and leaders.get(row.dataset) not in (row.arm, None):
            continue
        words = [topic(experiment), *[row.dataset] * several, *[row.arm] * (which == "all")]
        name = re.sub(r"[^\w\-. ]+", "-", " ".join(words))[:200]
        record = stored.records[row.runs[0]]
        metrics = {metric_key(record.measured_on, each): value.mean for each, value in record.metrics.items()}
        about = {"rankbench.of_sweep": stored.about.id, "rankbench.arm": row.arm}
        about |= {metric_key(record.measured_on, each): number(record.metrics[each].mean) for each in row.cells}
        about |= {VERDICT: verdict} if (verdict := verdict_of(table, row)) else {}
        try:
            model = fit_from(
                Results(stored.folder, stored), row.arm, dataset=row.dataset, environment=environment, progress=False,
                execution=Execution(device=record.device),
            )  # fmt: skip
            with TemporaryDirectory(prefix="rankbench-") as scratch:
                model.save(folder := Path(scratch) / "model")
                found.append(register(folder, name, environment, labels, about, metrics, model_card(stored, table, row)))
        except RankbenchError as error:
            again = shlex.join(["rankbench", "fit", row.dataset, "--from", stored.about.id, row.arm, "--register", name])
            warn(f"{row.arm} on {row.dataset} was not registered: {error}; `{again}` does it")
    return found


def model_card(stored: StoredSweep, table: Table, row: ReportRow) -> str:
    """Return what a registered model says of itself, in Markdown: data, method, parameters, and metrics with intervals."""
    record, data = stored.records[row.runs[0]], stored.records[row.runs[0]].dataset
    verdict = verdict_of(table, row)
    several = len(row.runs) > 1
    counts = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in data.counts.items())
    lines = [
        f"**{row.arm}** on {data.name}{f': {verdict}' if verdict else ''}, by the tests of the sweep {stored.about.id}.",
        "",
        f"| metric on {record.measured_on} | this model | 95 % interval |" + f" mean of {len(row.runs)} seeds |" * several,
        "|---|---|---|" + "---|" * several,
    ]
    for name, cell in row.cells.items():
        own = record.metrics[name]
        lines.append(f"| {name} | {number(own.mean)} | {interval(own.low, own.high)} |" + f" {number(cell.mean)} |" * several)
    lines += [
        "",
        f"- data: {data.name} ({counts}), fingerprint {data.fingerprint}, {data.protocol}, split seed {data.split_seed}",
        f"- fitted on {record.fit_on}, seed {record.seed}, {record.dtype}",
        f"- method: {record.method}; {row.setting or 'defaults'}",
    ]
    return "\n".join(map(without_tags, lines))
