"""Run a sweep with a display and tracking, and write its report; for the command and for Python."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rankbench.core.environment import Environment
from rankbench.reports.report import links_of, note, sweep_table, write_pages, write_report
from rankbench.reports.tables import Table
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.heartbeat import Progress
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.sweep import Listener, comparisons, run_sweep
from rankbench.sweeps.units import Unit
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink, tracking_uri
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import sweep_views


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
    spec: ExperimentSpec,
    source: str,
    environment: Environment,
    display: Display,
    labels: Labels | None = None,
    **options: Any,
) -> tuple[Path, Table, int]:
    """Run a sweep, send its runs to MLflow and write its report. `options` are those of `run_sweep`.

    `labels`: the user's choices for MLflow, by default those of its environment variables. Returns the folder, the table, and
    the number of failed runs. Raises as `run_sweep` does.
    """
    # Parameters that differ between the runs of an arm; they make up the names of its runs.
    drawn = {arm.label: arm.searched for arm in spec.arms}
    named = {arm.label: drawn[arm.label] or [*arm.params] for arm in spec.arms}
    metric = spec.search.choose.metric
    several = len(spec.dataset_names) > 1, len(spec.final.split_seeds or ()) > 1
    labels = labels or Labels.from_env(source)
    artifacts = environment.results / "mlartifacts"
    sink = MlflowSink(tracking_uri(environment), spec.name, artifacts, display.warn, labels=labels)
    with sink:
        with display:

            def planned(plan: Plan, folder: Path) -> None:
                display.planned(plan, folder)
                sink.open()
                facts: dict[str, Any] = {
                    "datasets": [card.name for card in plan.cards],
                    "arms": [arm.label for arm in spec.arms],
                }
                facts |= {"not_available": [*plan.not_available]} if plan.not_available else {}
                facts |= {"settings": plan.n_settings, "fits": plan.n_fits, "chosen_by": metric}
                published = spec.published.model_dump(exclude={"recall"}) if spec.published else {}
                views = sweep_views(spec.name, folder.name, metric, spec.report_metrics, list(drawn.values()))
                sink.start_sweep(folder.name, facts, {"rankbench.question": spec.question}, published, views)
                records["folder"] = folder / "records"

            def done(unit: Unit, finished: list[RunRecord]) -> None:
                display.done(unit, finished)
                used = {unit.job.run_id(config): config.used for config in unit.job.configs}
                for record in finished:
                    name = run_name(record, named.get(record.arm or record.method, ()), *several)
                    sink.send(record, records["folder"] / record.id, name, used.get(record.id), first=metric)

            def finished(folder: Path) -> None:
                stored, (place,) = read_sweep(folder), places
                if place.claim:
                    place.claim.require_newest()
                files.extend(write_report(folder / "report", stored.about, stored.chosen, stored.records, comparisons(stored)))
                place.publish(*(path.relative_to(folder).as_posix() for path in files))

            records: dict[str, Path] = {}
            files: list[Path] = []
            places: list[SweepStore] = []
            listener = Listener(display.accept, places.append, planned, display.stage, done, finished, display.warn)
            folder, failed = run_sweep(spec, source, environment, listener=listener, **options)
        stored = read_sweep(folder)
        compared = comparisons(stored)
        (place,) = places
        table = sweep_table(stored.about, stored.chosen, stored.records, compared)
        sink.finish_sweep(files, ok=not failed, note=note(spec.question, table))
        if (links := links_of(stored, environment)).runs:
            # Only now does the store have all runs, which the page links to.
            table = sweep_table(stored.about, stored.chosen, stored.records, compared, links)
            pages = write_pages(folder / "report", stored.about, stored.chosen, table, stored.records)
            place.publish(*(path.relative_to(folder).as_posix() for path in pages))
        return folder, table, len(failed)
