"""Spend a budget of time on tasks: run them as trials, on this machine or a cluster, and store what they measure."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.judge.printing import percent
from rankbench.ledger.claims import Claims
from rankbench.reproduce.evidence import Evidence, records_folder, stored_fit
from rankbench.reproduce.required_fits import PaperRow
from rankbench.reproduce.schedule import Task, fresh, in_time, next_batch, slots
from rankbench.reproduce.search import search
from rankbench.reproduce.simulations import Simulation, simulate
from rankbench.reproduce.timing import alone_folder, keep_seconds, time_alone, untimed
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.running import OutOfTime, Running
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.environment import code_revision
from rankbench.tracking.record import RunRecord, find_record
from rankbench.tracking.run_fields import CHANGED

NAMED = 3  # tasks that are named if they were not begun


@dataclass
class BudgetedRun:
    """What a call may use and has done. `search_seconds`: the training time of each search. `on_progress(line)` tells the
    user; `on_records(unit, records, folder, rows)` is called with finished records, their folder, and the rows that each of
    them serves; `running` are the fits that run.
    """

    evidence: Evidence
    search_seconds: float | None
    on_progress: Callable[[str], None]
    on_records: Callable[[Unit, list[RunRecord], Path, list[Sequence[PaperRow]]], None]
    running: Running = field(default_factory=Running)
    fitted: int = 0
    searched: int = 0
    studied: int = 0
    failed: list[str] = field(default_factory=list)
    left_to_others: int = 0

    def leave(self, tasks: Sequence[Task]) -> None:
        """Leave tasks to another command, and say so."""
        self.left_to_others += len(tasks)
        for task in tasks:
            self.on_progress(f"{task.labels} on {task.dataset}: skipped: another command is running it")


def run_within_budget(
    tasks_left: Callable[[], Sequence[Task]],
    budgeted: BudgetedRun,
    environment: Environment,
    cluster: Session,
    metrics: dict[str, MetricSet],
    deadline: float | None,
) -> bool:
    """Run tasks in their order until none is left or the `deadline` (time.monotonic) has passed. Returns whether none is left.

    `tasks_left` is asked again after each search, so that the setting that it chose is fitted next. What has failed is not
    tried again by the same call, and what another command is at is left to it. Of the fits that come next, `in_time` says which
    begin. When nothing else is left, one more begins on each processor, and is interrupted at the deadline; a call that is made
    later goes on from its last checkpoint first.
    """
    queue, room = list(tasks_left()), (cluster.cpus, cluster.gpus)
    running, begun, late = budgeted.running, set[tuple[object, ...]](), dict[tuple[object, ...], Task]()
    with _until(deadline, running):
        while running.seconds_left > 0:
            if not queue:  # fits took less time than estimated, so that others have time now
                late = {key: task for key, task in late.items() if fresh(task, budgeted.evidence, budgeted.search_seconds)}
                queue = in_time([*late.values()], running.seconds_left, *room)[0]
                late = {key: task for key, task in late.items() if not any(task is other for other in queue)}
            if not queue:
                break
            batch = next_batch(queue, running.seconds_left)
            queue = [task for task in queue if not any(task is other for other in batch)]
            batch = [left for task in batch if task.key not in begun
                     and (left := fresh(task, budgeted.evidence, budgeted.search_seconds))]  # fmt: skip
            batch, too_long, _ = in_time(batch, running.seconds_left, *room)
            late |= {task.key: task for task in too_long}
            begun |= {task.key for task in batch}
            if _work_on(batch, budgeted, environment, cluster, metrics):
                queue = list(tasks_left())
        shortest = sorted((task for task in late.values() if task.unit is not None), key=lambda task: task.seconds)
        if running.seconds_left > 0 and (more := shortest[: slots(shortest, *room)]):
            for task in more:
                budgeted.on_progress(
                    f"{_needs(task, running)}; it begins as nothing shorter is left, and the same command continues it"
                )
                del late[task.key]
            _work_on(more, budgeted, environment, cluster, metrics)
    for task in [*late.values()][:NAMED]:
        budgeted.on_progress(f"not begun: {_needs(task, running)}")
    if len(late) > NAMED:
        budgeted.on_progress(f"not begun: {len(late) - NAMED:,} more tasks that had no time")
    return not (running.over or late or budgeted.left_to_others or any(task.key not in begun for task in queue))


def _work_on(
    batch: Sequence[Task], budgeted: BudgetedRun, environment: Environment, cluster: Session, metrics: dict[str, MetricSet]
) -> bool:
    """Run those of the tasks that no other command runs. Returns whether it was a search, after which other tasks are left."""
    with Claims(claims_folder(environment)) as claims:
        claimed = [task for task in batch if claims.take(*task.claims)]
        budgeted.leave([task for task in batch if task not in claimed])
        budgeted.evidence.read()  # another command may have measured them since
        free = [left for task in claimed if (left := fresh(task, budgeted.evidence, budgeted.search_seconds))]
        if not free:
            return False
        first = free[0]
        if first.study is not None:
            simulate(first.study, first.dataset, budgeted.evidence, environment, budgeted.running.require_time)
            budgeted.studied += 1
            budgeted.on_progress(f"{first.tables} on {first.dataset}: {first.study.study} is done")
        elif first.searched is not None:
            _search(first, budgeted, environment, cluster, metrics)
        else:
            _fit(free, budgeted, environment, cluster)
        return first.searched is not None


def _needs(task: Task, running: Running) -> str:
    left = max(running.seconds_left, 0)
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
    return records_folder(environment).parent / "locks"


def run_alone(
    rows: Sequence[PaperRow],
    studies: Sequence[tuple[Simulation, str]],
    budgeted: BudgetedRun,
    environment: Environment,
    cluster: Session,
    metrics: dict[str, MetricSet],
    deadline: float | None,
) -> bool:
    """Time one measured fit per dataset, method and encoder, one after another, and run the studies that measure seconds, with
    their datasets. Returns whether nothing is left.
    """
    from rankbench.sweeps.run_units import run_units  # imports Ray, which reads the variables that the session sets

    store = SweepStore(alone_folder(environment).parent)

    served: Sequence[PaperRow] = ()

    def run(unit: Unit, spec: ExperimentSpec, done: Callable[[Unit, list[RunRecord], bool], None]) -> None:
        def both(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            done(unit, records, cached)
            budgeted.on_records(unit, records, store.records, [served] * len(records))

        _forget_others([unit], store, environment)
        run_units(
            [unit], environment, store, cluster, spec.resources, both, warn=budgeted.on_progress, running=budgeted.running
        )

    with _until(deadline, budgeted.running):
        for fit in untimed(rows, budgeted.evidence):
            budgeted.running.require_time()
            what, served = f"{fit.rows[0].arm.label} on {fit.card.name}", fit.rows
            record = time_alone(fit, budgeted.evidence, environment, metrics[fit.card.name], cluster.cpus, run)
            if record is None:
                budgeted.failed.append(f"{what}: the fit failed")
            else:
                budgeted.fitted += 1
                budgeted.on_progress(f"{what}: {record.seconds['fit']:.1f} s alone, {record.threads} threads")
        for study, dataset in studies:
            if study.alone and study.stored(dataset, budgeted.evidence) is None:
                budgeted.on_progress(f"{study.study} of {study.table} on {dataset}")
                simulate(study, dataset, budgeted.evidence, environment, budgeted.running.require_time)
                budgeted.studied += 1
    return not budgeted.running.over


def _fit(batch: Sequence[Task], budgeted: BudgetedRun, environment: Environment, cluster: Session) -> None:
    """Run fits of known settings and store them."""
    by_unit = {task.unit.run_id: task for task in batch if task.unit}
    store = SweepStore(records_folder(environment).parent)

    def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
        task = by_unit[unit.run_id]
        served: list[Sequence[PaperRow]] = []
        for record, config in zip(records, unit.job.configs, strict=False):
            fit = next((each for each in task.fits if each.config == config), None)
            if fit is None:  # another command has measured it meanwhile, of several that share an inverse
                served.append(())
                continue
            served.append(fit.rows)
            if record.finished:
                line = stored_fit(record, config, fit.card_key, idle=False, metrics=fit.metrics)
                budgeted.evidence.add(keep_seconds(line, fit, budgeted.evidence))
                budgeted.fitted += 1
                budgeted.on_progress(_line(record, task))
            elif record.failed:
                budgeted.failed.append(f"{task.labels} on {task.dataset}: {record.error}")
                budgeted.on_progress(f"failed: {task.labels} on {task.dataset}: {record.error}")
        budgeted.on_records(unit, records, store.records, served)

    _run([task.unit for task in batch if task.unit], batch[0].fits[0].rows[0], environment, store, cluster, done, budgeted)


def _forget_others(planned: Sequence[Unit], store: SweepStore, environment: Environment) -> None:
    """Remove records of the units that are of other prepared data than those of now, or by code that was not committed, unless
    it is that of now: nobody knows what it was. A fit that did not finish does not say its data.
    """
    for unit in planned:
        for config in unit.job.configs:
            if record := find_record(folder := store.records / unit.job.run_id(config)):
                revision = str(record.environment.get("revision") or "")
                unknown = revision.endswith(CHANGED) and revision != code_revision()
                if unknown or record.dataset.fingerprint not in ("", prepare(unit.job.card, environment).fingerprint):
                    shutil.rmtree(folder)


def _search(
    task: Task, budgeted: BudgetedRun, environment: Environment, cluster: Session, metrics: dict[str, MetricSet]
) -> None:
    """Search the setting of a row and store it."""
    row = task.searched
    assert row is not None, "only a task with a row is a search"
    found_on = f"{row.arm.label} on {row.dataset}"
    store = SweepStore(_folder_of_search(row, task.on, environment))

    def run(planned: Sequence[Unit], done: Callable[[Unit, list[RunRecord], bool], None]) -> None:
        def both(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            done(unit, records, cached)
            budgeted.on_records(unit, records, store.records, [[row]] * len(records))

        _run(planned, row, environment, store, cluster, both, budgeted)

    budgeted.on_progress(f"search {found_on}")
    size = Size.of(prepare(row.card, environment))
    line = search(row, task.on, size, metrics[row.dataset], cluster.cpus, budgeted.search_seconds, run)
    if line is None:
        budgeted.failed.append(f"search of {found_on}: every draw failed")
        return
    budgeted.evidence.add(line)
    budgeted.searched += 1
    budgeted.on_progress(f"chosen for {found_on}: {line.metric} {line.value:.4f} on {line.on}")


def _run(
    planned: Sequence[Unit],
    row: PaperRow,
    environment: Environment,
    store: SweepStore,
    cluster: Session,
    done: Callable[[Unit, list[RunRecord], bool], None],
    budgeted: BudgetedRun,
) -> None:
    from rankbench.sweeps.run_units import run_units  # imports Ray, which reads the variables that the session sets

    spec, running = row.table.spec, budgeted.running
    _forget_others(planned, store, environment)
    run_units(
        planned, environment, store, cluster, spec.resources, done, spec.search,
        warn=budgeted.on_progress, running=running, in_order=True,
    )  # fmt: skip


def _folder_of_search(row: PaperRow, on: str, environment: Environment) -> Path:
    """The folder of the records of a search: that of all fits, so that equal settings of other rows are not fitted again. If a
    scheduler may end its trials, which it does on validation alone, it has one of its own, since what becomes of a trial
    depends on the others.
    """
    shared, asked = records_folder(environment).parent, row.table.spec.search
    if asked.scheduler == "none" or on != "valid":
        return shared
    content = repr((row.search_key, on, asked.scheduler, asked.grace, asked.seed))
    return shared / "searches" / hashlib.sha256(content.encode()).hexdigest()[:16]


def _line(record: RunRecord, task: Task) -> str:
    first = task.fits[0].rows[0]
    numbers = []
    for name, value in first.published.items():
        if name in record.metrics and value:
            mean = record.metrics[name].mean
            difference = "" if first.stand_in else f" ({percent(mean / value - 1, '+.1f')})"
            numbers.append(f"{name} {mean:.4f}{difference}")
    return f"{record.label} on {task.dataset}, {task.stage}, seed {record.seed}: {', '.join(numbers)}"
