"""Run a sweep with a display and tracking, and write its report; for the command and for Python."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rankbench.core.environment import Environment
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.tables import Table, render
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.heartbeat import Progress
from rankbench.sweeps.plan import Plan, Unit
from rankbench.sweeps.sweep import Listener, comparisons, run_sweep
from rankbench.tracking.mlflow_sink import MlflowSink, metric_key, tracking_uri
from rankbench.tracking.record import RunRecord


class Display(Protocol):
    """Shows a running sweep on a terminal, in a notebook, or not at all. It is entered before the plan is made."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...
    def accept(self, plan: Plan, begun: Path | None) -> None: ...
    def planned(self, plan: Plan, folder: Path) -> None: ...
    def stage(self, progress: Progress) -> None: ...
    def done(self, unit: Unit, records: list[RunRecord]) -> None: ...
    def warn(self, line: str) -> None: ...


def execute(
    spec: ExperimentSpec, source: str, environment: Environment, display: Display, **options: Any
) -> tuple[Path, Table, int]:
    """Run a sweep, send its runs to MLflow and write its report. `options` are those of `run_sweep`.

    Returns the folder, the table, and the number of failed runs. Raises as `run_sweep` does.
    """
    # Parameters that differ between the runs of an arm; they make up the names of its runs.
    named = {arm.label: [n for n, v in arm.params.items() if isinstance(v, dict)] or [*arm.params] for arm in spec.arms}
    sink = MlflowSink(tracking_uri(environment), spec.name, environment.results / "mlartifacts", display.warn)
    with display:

        def planned(plan: Plan, folder: Path) -> None:
            display.planned(plan, folder)
            sink.open()
            facts: dict[str, Any] = {"datasets": [card.name for card in plan.cards], "arms": [arm.label for arm in spec.arms]}
            facts |= {"not_available": [*plan.not_available]} if plan.not_available else {}
            facts |= {"settings": plan.n_settings, "fits": plan.n_fits, "chosen_by": spec.search.choose.metric}
            published = spec.published.model_dump(exclude={"recall"}) if spec.published else {}
            sink.start_sweep(folder.name, facts, {"rankbench.question": spec.question}, published)
            records["folder"] = folder / "records"

        def done(unit: Unit, finished: list[RunRecord]) -> None:
            display.done(unit, finished)
            for record in finished:
                sink.send(record, records["folder"] / record.id, named.get(record.arm or record.method, ()))

        records: dict[str, Path] = {}
        listener = Listener(display.accept, planned, display.stage, done, display.warn)
        folder, failed = run_sweep(spec, source, environment, listener=listener, **options)
    stored = read_sweep(folder)
    compared = comparisons(stored)
    files = write_report(folder / "report", stored.about, stored.chosen, stored.records, compared)
    table = sweep_table(stored.about, stored.chosen, stored.records, compared)
    headline = {
        metric_key(f"final/{row.dataset}/{row.arm}", name): cell.mean for row in table.rows for name, cell in row.cells.items()
    }
    sink.finish_sweep(headline, files, ok=not failed, note=f"{spec.question}\n\n{render(table, 'md')}")
    return folder, table, len(failed)
