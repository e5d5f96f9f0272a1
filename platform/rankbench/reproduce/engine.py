"""Spend a budget of time on tasks: run them as trials, on this machine or a cluster, and store what they measure."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.reproduce.adopt import records_folder
from rankbench.reproduce.beyond import edges, one_step_beyond
from rankbench.reproduce.distinct import distinct_settings
from rankbench.reproduce.evidence import Evidence, StoredSearch, stored_fit
from rankbench.reproduce.schedule import Task, fresh
from rankbench.reproduce.simulations import simulate
from rankbench.reproduce.wanted import Row
from rankbench.sweeps.plan import Unit, units
from rankbench.tracking.record import RunRecord

BEYOND = 3  # number of steps beyond the range of a parameter


@dataclass
class Spending:
    """What a call has done. `told(line)` reports a line to the user; `sent(unit, records)` is called with finished records."""

    evidence: Evidence
    told: Callable[[str], None]
    sent: Callable[[Unit, list[RunRecord]], None]
    fitted: int = 0
    searched: int = 0
    studied: int = 0
    failed: list[str] = field(default_factory=list)


def spend(
    tasks_left: Callable[[], Sequence[Task]],
    spending: Spending,
    environment: Environment,
    cluster: Session,
    metrics: dict[str, MetricSet],
    deadline: float | None,
) -> bool:
    """Run tasks in their order until none is left or the `deadline` (time.monotonic) has passed. Returns whether none is left.

    `tasks_left` is asked again after each search, so that the setting that it chose is fitted next. What has failed is not
    tried again by the same call. A fit that the deadline interrupts goes on from its last
    checkpoint when the command is given again.
    """
    queue = list(tasks_left())
    begun: set[tuple[object, ...]] = set()
    over = threading.Event()
    try:
        with _until(deadline, over):
            while queue:
                batch = _batch(queue)
                queue = queue[len(batch) :]
                batch = [left for task in batch if task.key not in begun and (left := fresh(task, spending.evidence))]
                begun |= {task.key for task in batch}
                if batch and batch[0].study is not None:
                    simulate(batch[0].study, batch[0].dataset, spending.evidence, environment)
                    spending.studied += 1
                    spending.told(f"{batch[0].tables} on {batch[0].dataset}: {batch[0].study.study} is done")
                elif batch and batch[0].searched is not None:
                    _search(batch[0].searched, spending, environment, cluster, metrics)
                    queue = list(tasks_left())
                elif batch:
                    _fit(batch, spending, environment, cluster)
    except KeyboardInterrupt:
        if not over.is_set():
            raise
        return False
    return True


def _batch(queue: Sequence[Task]) -> list[Task]:
    """The next search or study, or all fits before it: the more of them, the less a processor waits for the last one."""
    fits = itertools.takewhile(lambda task: task.unit is not None, queue)
    return [*fits] or [queue[0]]


def _fit(batch: Sequence[Task], spending: Spending, environment: Environment, cluster: Session) -> None:
    """Run fits of known settings and store them."""
    by_unit = {task.unit.run_id: task for task in batch if task.unit}

    def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
        task = by_unit[unit.run_id]
        for record, config in zip(records, unit.job.configs, strict=False):
            fit = next(each for each in task.fits if each.config is config or each.config == config)
            if record.finished:
                spending.evidence.add(stored_fit(record, config, fit.card_key, idle=False))
                spending.fitted += 1
                spending.told(_line(record, task))
            elif record.failed:
                spending.failed.append(f"{task.labels} on {task.dataset}: {record.error}")
                spending.told(f"failed: {task.labels} on {task.dataset}: {record.error}")
        spending.sent(unit, records)

    _run([task.unit for task in batch if task.unit], batch[0].fits[0].rows[0], environment, cluster, done, spending)


def _search(row: Row, spending: Spending, environment: Environment, cluster: Session, metrics: dict[str, MetricSet]) -> None:
    """Search the setting of a row on the validation set, beyond its range if the best draw lies on its edge."""
    spec, metric = row.table.spec, row.table.spec.search.choose.metric
    size = Size.of(prepare(row.card, environment))
    tried: dict[str, RunRecord] = {}
    by_record: dict[str, dict] = {}

    def run(settings: list[dict]) -> None:
        configs = [configure(row.arm.method, values, row.source, row.arm.label) for values in settings]
        planned = units(row.card, size, configs, spec, metrics[row.dataset], "search", cluster.cpus)
        values_of = {
            unit.job.run_id(config): settings[configs.index(config)] for unit in planned for config in unit.job.configs
        }

        def done(unit: Unit, records: list[RunRecord], cached: bool) -> None:
            for record in records:
                tried[record.id] = record
                by_record[record.id] = values_of[record.id]
            spending.sent(unit, records)

        _run(planned, row, environment, cluster, done, spending)

    spending.told(f"search {row.arm.label} on {row.dataset}")
    run(distinct_settings(row.arm.params, spec.search.trials, spec.search.seed, row.source))
    drawn = len(tried)
    for _ in range(BEYOND):
        best = _best(tried, metric)
        further = one_step_beyond(row.arm, by_record[best.id], list(by_record.values())) if best else []
        if not further:
            break
        run(further)
    best = _best(tried, metric)
    if best is None:
        spending.failed.append(f"search of {row.arm.label} on {row.dataset}: every draw failed")
        return
    values = by_record[best.id]
    spending.evidence.add(
        StoredSearch(
            dataset=row.dataset,
            card=row.card_key,
            method=row.arm.method,
            space=row.arm.params,
            metric=metric,
            draws=drawn,
            chosen={name: values[name] for name in row.searched},
            value=round(best.metrics[metric].mean, 6),
            failed=sum(record.failed for record in tried.values()),
            beyond=len(tried) - drawn,
            edges=tuple(edges(row.arm, values, list(by_record.values()))),
            seconds=round(sum(r.seconds.get("fit", 0.0) / max(r.fit_shared_by, 1) for r in tried.values()), 1),
            seed=spec.search.seed,
            revision=best.environment.get("revision"),
            started_at=best.started_at,
        )
    )
    spending.searched += 1
    spending.told(f"chosen for {row.arm.label} on {row.dataset}: {metric} {best.metrics[metric].mean:.4f} on valid")


def _best(tried: dict[str, RunRecord], metric: str) -> RunRecord | None:
    finished = [record for record in tried.values() if record.finished]
    return max(finished, key=lambda record: record.metrics[metric].mean, default=None)


def _run(
    planned: Sequence[Unit],
    row: Row,
    environment: Environment,
    cluster: Session,
    done: Callable[[Unit, list[RunRecord], bool], None],
    spending: Spending,
) -> None:
    from rankbench.sweeps.tuner import run_units  # imports Ray, which reads the variables that the session sets

    run_units(planned, environment, records_folder(environment), cluster, row.table.spec, done, warn=spending.told)


def _line(record: RunRecord, task: Task) -> str:
    first = task.fits[0].rows[0]
    numbers = [
        f"{name} {record.metrics[name].mean:.4f} ({100 * (record.metrics[name].mean / value - 1):+.1f} %)"
        for name, value in first.published.items()
        if name in record.metrics and value
    ]
    return f"{record.arm or record.method} on {task.dataset}, {task.stage}, seed {record.seed}: {', '.join(numbers)}"


@contextmanager
def _until(deadline: float | None, over: threading.Event) -> Iterator[None]:
    """Interrupt the block at the deadline as Ctrl-C would, so that checkpoints are kept, and set `over`. Only the main thread
    can be interrupted.
    """
    if deadline is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        over.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
