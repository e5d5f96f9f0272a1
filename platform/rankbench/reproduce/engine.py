"""Spend a budget of time on tasks: run them as trials, on this machine or a cluster, and store what they measure."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rankbench.cluster.session import Session
from rankbench.core.code import package_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.ledger.claims import Claims
from rankbench.reproduce.evidence import Evidence, stored_fit
from rankbench.reproduce.mlflow_tags import beside_published
from rankbench.reproduce.required_fits import PaperRow, RequiredFit
from rankbench.reproduce.schedule import Task, fresh, in_time, measurement_of, next_batch, slots, store_of
from rankbench.reproduce.search import Done, search
from rankbench.reproduce.simulations import StudyTable, simulate
from rankbench.reproduce.timing import keep_seconds, time_alone, untimed
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.running import OutOfTime, Running
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import RunRecord, find_record
from rankbench.tracking.run_fields import CHANGED

NAMED = 3  # tasks that are named if they were not begun


@dataclass
class Outcome:
    """What a call has done, what failed, and whether nothing is left."""

    fitted: int = 0
    searched: int = 0
    studied: int = 0
    complete: bool = False
    failed: list[str] = field(default_factory=list)


@dataclass
class BudgetedRun:
    """What a call may use and has done.

    `metrics`: what is measured on each dataset. `search_seconds`: the training time of each search. `deadline`: when the call
    ends (time.monotonic). `on_progress(line)` tells the user; `on_records(unit, records, folder, rows)` is called with finished
    records, their folder, and the rows that each of them serves; `running` are the fits that run.
    """

    evidence: Evidence
    environment: Environment
    cluster: Session
    metrics: dict[str, MetricSet] = field(default_factory=dict)
    search_seconds: float | None = None
    deadline: float | None = None
    on_progress: Callable[[str], None] = lambda line: None
    on_records: Callable[[Unit, list[RunRecord], Path, list[Sequence[PaperRow]]], None] = lambda *records: None
    running: Running = field(default_factory=Running)
    outcome: Outcome = field(default_factory=Outcome)
    left_to_others: int = 0

    def leave(self, tasks: Sequence[Task]) -> None:
        """Leave tasks to another command, and say so."""
        self.left_to_others += len(tasks)
        for task in tasks:
            self.on_progress(f"{task.labels} on {task.dataset}: skipped: another command is running it")

    def left_of(self, tasks: Sequence[Task]) -> list[Task]:
        """Return what the evidence lacks of tasks."""
        return [left for task in tasks if (left := fresh(task, self.evidence, self.search_seconds))]

    def fail(self, what: str) -> None:
        """Take down what failed, and say so."""
        self.outcome.failed.append(what)
        self.on_progress(f"failed: {what}")


def run_within_budget(tasks_left: Callable[[], Sequence[Task]], budgeted: BudgetedRun) -> bool:
    """Run tasks in their order until none is left or the deadline has passed. Returns whether none is left.

    `tasks_left` is asked again after each search, so that the setting that it chose is fitted next. What has failed is not
    tried again by the same call, and what another command is at is left to it. Of the fits that come next, `in_time` says which
    begin. When nothing else is left, one more begins on each processor, and is interrupted at the deadline; a call that is made
    later goes on from its last checkpoint first.
    """
    queue, room = list(tasks_left()), (budgeted.cluster.cpus, budgeted.cluster.gpus)
    running, begun, late = budgeted.running, set[tuple[object, ...]](), dict[tuple[object, ...], Task]()
    with _until(budgeted.deadline, running):
        while running.seconds_left > 0:
            if not queue:  # fits took less time than estimated, so that others have time now
                late = {task.key: task for task in budgeted.left_of([*late.values()]) if task.key not in begun}
                queue = in_time([*late.values()], running.seconds_left, *room)[0]
                late = {key: task for key, task in late.items() if task not in queue}
            if not queue:
                break
            batch = next_batch(queue, running.seconds_left)
            queue = [task for task in queue if task not in batch]
            batch = budgeted.left_of([task for task in batch if task.key not in begun])
            batch, too_long, _ = in_time(batch, running.seconds_left, *room)
            late |= {task.key: task for task in too_long}
            begun |= {task.key for task in batch}
            if _work_on(batch, budgeted):
                queue = list(tasks_left())
        shortest = sorted((task for task in late.values() if task.unit is not None), key=lambda task: task.seconds)
        if running.seconds_left > 0 and (more := shortest[: slots(shortest, *room)]):
            for task in more:
                budgeted.on_progress(
                    f"{_needs(task, budgeted)}; it begins as nothing shorter is left, and the same command continues it"
                )
                del late[task.key]
            _work_on(more, budgeted)
    for task in [*late.values()][:NAMED]:
        budgeted.on_progress(f"not begun: {_needs(task, budgeted)}")
    if len(late) > NAMED:
        budgeted.on_progress(f"not begun: {len(late) - NAMED:,} more tasks that had no time")
    left = running.over or late or budgeted.left_to_others or budgeted.outcome.failed
    return not (left or any(task.key not in begun for task in queue))


def _work_on(batch: Sequence[Task], budgeted: BudgetedRun) -> bool:
    """Run those of the tasks that no other command runs. Returns whether it was a search, after which other tasks are left."""
    with Claims(claims_folder(budgeted.environment)) as claims:
        claimed = [task for task in batch if claims.take(*task.claims)]
        budgeted.leave([task for task in batch if task not in claimed])
        budgeted.evidence.read()  # another command may have measured them since
        if not (free := budgeted.left_of(claimed)):
            return False
        first = free[0]
        if first.study is not None:
            _study(first.study, budgeted)
            budgeted.on_progress(f"{first.tables} on {first.dataset}: {first.labels} is done")
        elif first.searched:
            _search(first, budgeted)
        else:
            _fit(free, budgeted)
        return bool(first.searched)


def _needs(task: Task, budgeted: BudgetedRun) -> str:
    left = max((budgeted.deadline or 0) - time.monotonic(), 0)
    return f"{task.labels} on {task.dataset} takes about {task.seconds:.0f} s, and {left:.0f} s of the budget are left"


@contextmanager
def _until(deadline: float | None, running: Running) -> Iterator[None]:
    """End the block at the deadline, without an error, and set `running.over`."""
    running.deadline = deadline
    try:
        yield
    except OutOfTime:
        running.over = True
    finally:
        running.deadline = None


def claims_folder(environment: Environment) -> Path:
    """The folder of the claims of commands that share a folder of results."""
    return store_of(environment).folder / "locks"


def run_alone(rows: Sequence[PaperRow], studies: Sequence[StudyTable], budgeted: BudgetedRun) -> bool:
    """Time one measured fit per dataset, method and encoder, one after another, and run the studies that measure seconds.
    Returns whether nothing is left.
    """
    with _until(budgeted.deadline, budgeted.running):
        for fit in untimed(rows, budgeted.evidence):
            budgeted.running.require_time()
            _time(fit, budgeted)
        for study in studies:
            if study.simulation.alone and study.stored(budgeted.evidence) is None:
                budgeted.on_progress(f"{study.simulation.study} of {study.simulation.table} on {study.dataset}")
                _study(study, budgeted)
    return not (budgeted.running.over or budgeted.outcome.failed)


def _time(fit: RequiredFit, budgeted: BudgetedRun) -> None:
    """Run a measured fit alone and store its seconds."""
    environment, what = budgeted.environment, f"{fit.rows[0].arm.label} on {fit.card.name}"
    store = SweepStore(store_of(environment).folder / "alone")

    def run(unit: Unit, spec: ExperimentSpec, done: Done) -> None:
        _run([unit], spec, store, done, lambda record: fit.rows, budgeted)

    record = time_alone(fit, budgeted.evidence, environment, budgeted.metrics[fit.card.name], budgeted.cluster.cpus, run)
    if record is None:
        budgeted.fail(f"{what}: the fit failed")
    else:
        budgeted.outcome.fitted += 1
        budgeted.on_progress(f"{what}: {record.seconds['fit']:.1f} s alone, {record.threads} threads")


def _study(study: StudyTable, budgeted: BudgetedRun) -> None:
    """Run a study in this process."""
    simulate(study, budgeted.evidence, budgeted.environment, budgeted.running.require_time)
    budgeted.outcome.studied += 1


def _fit(batch: Sequence[Task], budgeted: BudgetedRun) -> None:
    """Run fits of known settings and store them."""
    # Of settings that share an inverse, another command may have measured some meanwhile: those are not in the task any more.
    wanted = {task.unit.job.run_id(fit.config): (task, fit) for task in batch if task.unit for fit in task.fits}

    def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
        for record in (record for record in records if record.id in wanted):
            task, fit = wanted[record.id]
            if record.finished:
                line = stored_fit(record, fit.config, fit.card_key, idle=False, metrics=fit.metrics)
                budgeted.evidence.add(keep_seconds(line, fit, budgeted.evidence))
                budgeted.outcome.fitted += 1
                budgeted.on_progress(_line(record, task))
            elif record.failed:
                budgeted.fail(f"{task.labels} on {task.dataset}: {record.error}")

    planned, spec = [task.unit for task in batch if task.unit], batch[0].fits[0].rows[0].table.spec
    store = store_of(budgeted.environment)
    for run_id, (task, fit) in wanted.items():
        # A record of before that measurement must not take its place, and one without values of users cannot be tested.
        record, known = _record_in(folder := store.records / run_id, budgeted), measurement_of(fit, budgeted.evidence)
        older = record and known and record.started_at < known.started_at
        if task.stage == "again" and record and (older or not (folder / "per_user.parquet").is_file()):
            shutil.rmtree(folder)
    _run(planned, spec, store, done, lambda record: wanted[record.id][1].rows if record.id in wanted else (), budgeted)


def _record_in(folder: Path, budgeted: BudgetedRun) -> RunRecord | None:
    """The record in a folder, if there is one. One that cannot be read now, or was written by other code, is kept under a
    hidden name, and the fit is made again.
    """
    try:
        return find_record(folder)
    except DataError as error:
        kept = folder.rename(folder.with_name(f".unreadable-{folder.name}-{secrets.token_hex(4)}"))
        budgeted.on_progress(f"{error}; it is kept as {kept.name}, and the fit is repeated")
        return None


def _forget_others(planned: Sequence[Unit], store: SweepStore, budgeted: BudgetedRun) -> None:
    """Remove records of the units that are of other prepared data than those of now, or by code that was not committed, unless
    it is that of now: nobody knows what it was. A fit that did not finish does not say its data.
    """
    now: dict[str, str] = {}  # key of a card → fingerprint of its data
    for job in (unit.job for unit in planned):
        for config in job.configs:
            if record := _record_in(folder := store.records / job.run_id(config), budgeted):
                if (key := job.card.content_key()) not in now:
                    now[key] = prepare(job.card, budgeted.environment).fingerprint
                revision = str(record.environment.get("revision") or "")
                unknown = revision.endswith(CHANGED) and record.environment.get("code") != package_fingerprint()
                if unknown or record.dataset.fingerprint not in ("", now[key]):
                    shutil.rmtree(folder)


def _search(task: Task, budgeted: BudgetedRun) -> None:
    """Search the setting of the rows of a task and store it."""
    row, environment, found_on = task.searched[0], budgeted.environment, f"{task.name} on {task.dataset}"
    store = SweepStore(_folder_of_search(row, task.on, environment))

    def run(planned: Sequence[Unit], done: Done, may_begin: Callable[[Unit], bool]) -> None:
        _run(planned, row.table.spec, store, done, lambda record: task.searched, budgeted, may_begin)

    budgeted.on_progress(f"search {found_on}")
    size = Size.of(prepare(row.card, environment))
    line = search(row, task.on, size, budgeted.metrics[row.dataset], budgeted.cluster.cpus, budgeted.search_seconds, run)
    if line is None:
        budgeted.fail(f"search of {found_on}: every draw failed")
        return
    if line.failed:
        budgeted.on_progress(f"search of {found_on}: {line.failed} of {line.draws + line.beyond} draws failed")
    budgeted.evidence.add(line)
    budgeted.outcome.searched += 1
    budgeted.on_progress(f"chosen for {task.labels} on {task.dataset}: {line.metric} {line.value:.4f} on {line.on}")


def _run(
    planned: Sequence[Unit],
    spec: ExperimentSpec,
    store: SweepStore,
    done: Done,
    rows_of: Callable[[RunRecord], Sequence[PaperRow]],
    budgeted: BudgetedRun,
    may_begin: Callable[[Unit], bool] = lambda unit: True,
) -> None:
    """Run units in their order, without those that may not begin when their turn comes. `done` is called with their records,
    and then `budgeted.on_records`, with the rows that each serves.
    """
    from rankbench.sweeps.run_units import run_units  # imports Ray, which reads the variables that the session sets

    def ended(unit: Unit, records: list[RunRecord], cached: bool) -> None:
        done(unit, records, cached)
        budgeted.on_records(unit, records, store.records, [rows_of(record) for record in records])

    _forget_others(planned, store, budgeted)
    run_units(
        planned, budgeted.environment, store, budgeted.cluster, spec.resources, ended, spec.search,
        warn=budgeted.on_progress, running=budgeted.running, in_order=True, may_begin=may_begin,
    )  # fmt: skip


def _folder_of_search(row: PaperRow, on: str, environment: Environment) -> Path:
    """The folder of the records of a search: that of all fits, so that equal settings of other rows are not fitted again. If a
    scheduler may end its trials, which it does on validation alone, it has one of its own, since what becomes of a trial
    depends on the others.
    """
    shared, asked = store_of(environment).folder, row.table.spec.search
    if not asked.prunes or on != "valid":
        return shared
    content = repr((row.search_key, on, asked.scheduler, asked.grace, asked.seed))
    return shared / "searches" / hashlib.sha256(content.encode()).hexdigest()[:16]


def _line(record: RunRecord, task: Task) -> str:
    beside = beside_published(record, task.fits[0].rows[0])
    numbers = [f"{name} {mean:.4f}" + (f" ({difference})" if difference else "") for name, _, mean, difference in beside]
    return f"{record.label} on {task.dataset}, {task.stage}, seed {record.seed}: {', '.join(numbers)}"
