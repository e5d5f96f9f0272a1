"""Run a sweep with a display and tracking, and write its report; for the command and for Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rankbench.api.arm_runs import arm_runs
from rankbench.core.palette import run_colours
from rankbench.experiment.methods import method
from rankbench.fitting.method import Iterative
from rankbench.judge.printing import listed
from rankbench.reports.report import links_of, note, sweep_table, write_pages, write_report
from rankbench.reports.tables import Table
from rankbench.schema.experiment import topic
from rankbench.schema.stored_sweep import read_sweep
from rankbench.schema.sweep_id import title_of
from rankbench.sweeps.comparisons import comparisons
from rankbench.sweeps.heartbeat import Progress
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.sweep import Listener, run_sweep
from rankbench.sweeps.units import Unit
from rankbench.sweeps.views.phases import err
from rankbench.sweeps.views.sweep_view import SweepView
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_internals import COLOUR
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import sweep_views


def execute(request: SweepRequest, display: SweepView, labels: Labels | None = None) -> tuple[Path, Table, int]:
    """Run a sweep, send its runs to MLflow and write its report. `display` is entered before the plan is made.

    `labels`: the user's choices for MLflow, by default those of its environment variables. Returns the folder, the table, and
    the number of failed runs. Raises as `run_sweep` does.
    """
    spec, environment = request.spec, request.environment
    # Parameters that differ between the runs of an arm; they make up the names of its runs.
    drawn = {arm.label: arm.searched for arm in spec.arms}
    named = {arm.label: drawn[arm.label] or [*arm.params] for arm in spec.arms}
    colours = run_colours(arm.label for arm in spec.arms)
    metric = spec.search.choose.metric
    several = len(spec.dataset_names) > 1, len(spec.final.split_seeds or ()) > 1
    labels = labels or Labels.from_env(request.source)
    files: list[Path] = []
    places: list[SweepStore] = []

    def planned(plan: Plan, folder: Path) -> None:
        display.planned(plan, folder)
        sink.open()
        names = {"datasets": [card.name for card in plan.cards], "arms": [*drawn], "not_available": [*plan.not_available]}
        facts: dict[str, Any] = {key: listed(each) for key, each in names.items() if each}
        facts |= {"settings": plan.n_settings, "fits": plan.n_fits, "chosen_by": metric}
        published = spec.published.model_dump(exclude={"recall"}) if spec.published else {}
        curves = any(isinstance(method(arm.method), Iterative) for arm in spec.arms)
        searched = [*drawn.values()]
        views = sweep_views(folder.name, title_of(folder.name), metric, spec.report_metrics, searched, curves)
        sink.start_sweep(folder.name, facts, {"rankbench.question": spec.question}, published, views)

    def shown(unit: Unit, record: RunRecord) -> dict[str, Any]:
        """How MLflow shows a record of the unit."""
        used = {unit.job.run_id(config): config.used for config in unit.job.configs}
        arm = record.label
        name, tags = run_name(record, named.get(arm, ()), *several), {COLOUR: colours[arm]} if arm in colours else {}
        about = {"folder": places[0].records / record.id, "name": name, "params": used.get(record.id), "tags": tags}
        return about | {"first": metric}

    def stage(progress: Progress) -> None:
        progress.running.follow = lambda unit, record: sink.follow(record, **shown(unit, record))
        display.stage(progress)

    def done(unit: Unit, finished: list[RunRecord]) -> None:
        display.done(unit, finished)
        for record in finished:
            sink.send(record, **shown(unit, record))

    def publish(folder: Path, written: list[Path]) -> None:
        places[0].publish(*(path.relative_to(folder).as_posix() for path in written))

    def finished(folder: Path) -> None:
        stored = read_sweep(folder)
        if places[0].claim:
            places[0].claim.require_newest()
        files.extend(write_report(folder / "report", replace(stored, compared=comparisons(stored))))
        publish(folder, files)

    with MlflowSink.of(environment, topic(spec), labels, display.warn) as sink:
        with display:
            listener = Listener(display.accept, places.append, planned, stage, done, finished, display.warn)
            folder, failed = run_sweep(request, listener)
        stored = read_sweep(folder)
        stored = replace(stored, compared=comparisons(stored))
        table = sweep_table(stored)
        for arm in arm_runs(stored, table):
            sink.send_arm(**arm)
        sink.finish_sweep(files, ok=not failed, note=note(spec.question, table))
        if request.options.register:
            from rankbench.api.register_arms import register_arms  # imports what fits need

            for model in register_arms(stored, table, request.options.register, environment, labels, display.warn):
                err.print(f"registered {model.uri}")
        if (links := links_of(stored, environment)).runs:
            # Only now does the store have all runs, which the page links to.
            table = sweep_table(stored, links)
            publish(folder, write_pages(folder / "report", stored, table))
        return folder, table, len(failed)
