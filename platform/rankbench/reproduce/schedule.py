"""What to fit next: what was begun, known settings, then searches, then further seeds; rows that wait longest before others.

The stage "again" is for fits whose values per user are on another machine, which claims and neighbouring rows are tested by.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean
from typing import Literal, get_args

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.data.cards import Card
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import configure
from rankbench.fitting.drive import Begun
from rankbench.fitting.method import Iterative
from rankbench.judge.printing import listed
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import Part, StoredFit
from rankbench.reproduce.required_fits import PaperRow, RequiredFit, required_fits
from rankbench.reproduce.simulations import StudyTable
from rankbench.schema.space import expand
from rankbench.sweeps.store import CHECKPOINTS, SweepStore
from rankbench.sweeps.units import Unit, units
from rankbench.tracking.record import find_record

Stage = Literal["printed", "chosen", "as published", "study", "search", "seeds", "search on test", "again"]
STAGES: tuple[Stage, ...] = get_args(Stage)
UNKNOWN = Size(1, 1, 1, 1.0, 1)
# Printed and chosen settings measure a row alike, so the cheaper fit comes first.
TURN = {stage: max(number - 1, 0) for number, stage in enumerate(STAGES)}


@dataclass(frozen=True, eq=False)
class Task:
    """Work on rows of tables: fits of known settings that share a trial, a search on a part, or a study. Two tasks are equal if
    they are one object.
    """

    stage: Stage
    dataset: str
    fits: tuple[RequiredFit, ...] = ()
    unit: Unit | None = None
    searched: tuple[PaperRow, ...] = ()  # rows with one search, of several tables; that of most draws comes first
    on: Part = "valid"
    study: StudyTable | None = None
    waited: str = ""  # when the rows were measured last; empty if never
    seconds: float = 0.0  # a rough estimate; of a fit that was begun, of what is left
    begun: Begun | None = None  # by an earlier call, which has saved a checkpoint
    failed: bool = False  # then; it is not the first one of each further call

    @property
    def key(self) -> tuple[str, tuple[object, ...], tuple[object, ...], str]:
        """What the task is, whatever else has been measured since it was planned."""
        searched = (*_search_of(self.searched[0]), self.on) if self.searched else ()
        return self.dataset, tuple(fit.key for fit in self.fits), searched, self.study.simulation.table if self.study else ""

    @property
    def claims(self) -> tuple[str, ...]:
        """Its fits, or its search or study: what only one command runs at a time."""
        dataset, fits, *other = self.key
        return tuple(repr((dataset, fit)) for fit in fits) or (repr((dataset, *other)),)

    @property
    def rows(self) -> list[PaperRow]:
        """The rows that it serves; none for a study."""
        return [*(row for fit in self.fits for row in fit.rows), *self.searched]

    @property
    def row_labels(self) -> list[str]:
        """The labels of its rows, or the name of its study."""
        return [self.study.simulation.study] if self.study else [*dict.fromkeys(row.arm.label for row in self.rows)]

    @property
    def labels(self) -> str:
        return listed(self.row_labels)

    @property
    def name(self) -> str:
        """Its labels; of a search, also the metric that chooses, by which searches of a row for several columns differ."""
        return f"{self.labels} by {self.searched[0].table.spec.search.choose.metric}" if self.searched else self.labels

    @property
    def tables(self) -> str:
        return self.study.simulation.table if self.study else ", ".join(dict.fromkeys(row.table.name for row in self.rows))

    @property
    def n_cells(self) -> int:
        """Number of published cells that it serves."""
        of_study = len(self.study.published) if self.study else 0
        return sum(len(row.published) for row in self.rows) + of_study


def store_of(environment: Environment) -> SweepStore:
    """The place of the fits of `rankbench reproduce`, whose records become lines of the evidence."""
    return SweepStore(environment.results / "reproduce")


def tasks(
    rows: Sequence[PaperRow],
    studies: Iterable[StudyTable],
    evidence: Evidence,
    environment: Environment,
    metrics: dict[str, MetricSet],
    cpus: int | None,
    search_seconds: float | None = None,
    runs_here: Collection[str] | None = None,
    size_of: Callable[[Card], Size | None] | None = None,
) -> list[Task]:
    """Return what is not measured yet, in the order in which it is best done. `search_seconds`: the training time that each
    search may use; one that ended at a smaller bound is continued. What an earlier call has begun comes first, whatever its
    stage. `runs_here`: the stamps of the fits whose values per user are on this machine; with them, fits that were measured
    elsewhere are tasks of the stage "again". The data must be available, unless `size_of` tells their sizes; a task whose size
    is not known has 0 seconds.
    """
    size_of = size_of or (lambda card: Size.of(prepare(card, environment)))
    store, result = store_of(environment), list[Task]()
    groups: dict[tuple[object, ...], list[RequiredFit]] = {}
    for fit in required_fits(rows, evidence):
        known = measurement_of(fit, evidence)
        if known and (runs_here is None or known.stamp in runs_here):
            continue
        share = fit.config.share_key
        identity = fit.key if share is None else share
        key = known is not None, fit.card.name, fit.card_key, fit.part, fit.dtype, fit.seed, identity
        groups.setdefault(key, []).append(fit)
    for (measured, *_), members in groups.items():
        first = members[0]
        spec = first.experiment
        size = size_of(first.card)
        configs = [fit.config for fit in members]
        for unit in units(first.card, size or UNKNOWN, configs, spec, metrics[first.card.name], "final", cpus):
            own = tuple(fit for fit in members if any(fit.config is config for config in unit.job.configs))
            stage: Stage = "again" if measured else _stage(own)
            begun = Begun.read(store.folder / CHECKPOINTS / unit.run_id)
            seconds = _seconds_left(unit, begun) if begun else _seconds_of(own, evidence) or (unit.cost if size else 0.0)
            waited = _waited([row for fit in own for row in fit.rows], evidence)
            failed = False
            with suppress(DataError):  # one that cannot be read is named, and replaced, by the run
                record = find_record(store.records / unit.run_id)
                failed = record is not None and record.failed
            result.append(Task(stage, first.card.name, own, unit, waited=waited, seconds=seconds, begun=begun, failed=failed))
    searches: dict[tuple[Stage, Part, tuple[object, ...]], list[PaperRow]] = {}
    for row in (row for row in rows if row.published):
        wanted: list[tuple[Stage, Part]] = [("search", "valid")] if row.needs_search else []
        wanted += [("search on test", "test")] if row.needs_search_on_test else []
        for stage, on in wanted:
            if not is_searched(row, on, evidence, search_seconds):
                searches.setdefault((stage, on, _search_of(row)), []).append(row)
    for (stage, on, _), alike in searches.items():
        alike.sort(key=lambda row: -row.table.spec.search.trials)
        seconds = _search_seconds(alike[0], size_of(alike[0].card), metrics, cpus)
        bounded = seconds if search_seconds is None else min(seconds, search_seconds)
        waited = _waited(alike, evidence)
        result.append(Task(stage, alike[0].dataset, searched=tuple(alike), on=on, waited=waited, seconds=bounded))
    for study in (each for each in studies if each.stored(evidence) is None):
        result.append(Task("study", study.dataset, study=study, seconds=study.simulation.seconds(study.dataset)))
    return sorted(
        result,
        key=lambda task: (
            task.begun is None or task.failed,
            TURN[task.stage],
            task.waited,
            task.seconds / max(task.n_cells, 1),
        ),
    )


def _seconds_left(unit: Unit, begun: Begun) -> float:
    """The seconds of the iterations that are left, at the pace of those that are done, or else by the estimate of the unit."""
    first = unit.job.configs[0]
    assert isinstance(first.spec, Iterative), "no other fit has checkpoints"
    limit = first.spec.limit(first.params)
    return (limit - begun.iterations) * (unit.cost / limit if begun.pace is None else begun.pace)


def _seconds_of(fits: Iterable[RequiredFit], evidence: Evidence) -> float | None:
    """Return the seconds that the fits took with other seeds, which tell when validation ends a fit; None if one has none."""
    known = [[each.own_seconds for each in _found(fit, evidence)] for fit in fits]
    return sum(map(fmean, known)) if all(known) else None


def _search_seconds(row: PaperRow, size: Size | None, metrics: dict[str, MetricSet], cpus: int | None) -> float:
    """Return a rough estimate of the seconds of a search: those of its first setting for each of its settings."""
    if size is None:
        return 0.0
    spec = row.table.spec
    settings = expand(row.arm.params, spec.search.trials, spec.search.seed, row.source, distinct=True)
    config = configure(row.arm.method, settings[0], row.source, row.arm.label)
    (unit,) = units(row.card, size, [config], spec, metrics[row.dataset], "search", cpus)
    return unit.cost * len(settings)


def _search_of(row: PaperRow) -> tuple[object, ...]:
    """The search that rows of several tables can have in common."""
    return row.search_key, row.table.spec.search.seed


def is_searched(row: PaperRow, on: Part, evidence: Evidence, seconds: float | None) -> bool:
    """Whether the evidence has the search of a row, with all draws that the file asks for now, or with as much time."""
    found = row.search(evidence, on)
    if found is None:
        return False
    if found.bound is not None:
        return seconds is not None and seconds <= found.bound
    asked = row.table.spec.search
    return found.draws >= len(expand(row.arm.params, asked.trials, asked.seed, row.source, distinct=True))


def measurement_of(fit: RequiredFit, evidence: Evidence) -> StoredFit | None:
    """Return what the evidence has of the fit, with every metric that its rows publish; None if it was not measured."""
    return next((each for each in _found(fit, evidence) if each.seed == fit.seed), None)


def _found(fit: RequiredFit, evidence: Evidence) -> list[StoredFit]:
    """The measured fits of the setting, of any seed."""
    return evidence.find(fit.card.name, fit.card_key, fit.config, fit.part, fit.dtype, fit.metrics)


def _stage(fits: Iterable[RequiredFit]) -> Stage:
    """The earliest stage of the fits. All seeds of a chosen setting come at its stage, those of others but the first last."""
    stages: list[Stage] = []
    for fit in fits:
        first = fit.seed == fit.rows[0].seeds(fit.origin, fit.config)[0]
        stages.append(fit.origin if first or fit.origin == "chosen" else "seeds")
    return min(stages, key=STAGES.index)


def _waited(rows: Iterable[PaperRow], evidence: Evidence) -> str:
    dates = [each.started_at for row in rows for origin in ("printed", "chosen") for each in row.fits(origin, evidence)]
    return max(dates, default="")


def fresh(task: Task, evidence: Evidence, search_seconds: float | None = None) -> Task | None:
    """Return the task without fits that were measured since it was made; None if nothing is left."""
    if task.study is not None:
        return task if task.study.stored(evidence) is None else None
    if task.searched:
        return None if is_searched(task.searched[0], task.on, evidence, search_seconds) else task
    if task.stage == "again":
        return task
    left = tuple(fit for fit in task.fits if not measurement_of(fit, evidence))
    return replace(task, fits=left) if left else None


def next_batch(queue: Sequence[Task], seconds: float) -> list[Task]:
    """Return the next search or study of a queue, or the fits before it that need as many processors as the first one: the more
    of them, the less a processor waits for the last one. Fits of other needs would not run in the order of the queue.

    A batch with a fit that does not end within `seconds` lasts until then, so the fits of all later stages are beside it.
    """
    first = queue[0].unit

    def is_alike(task: Task) -> bool:
        return task.unit is not None and first is not None and task.unit.cpus == first.cpus

    batch = [*takewhile(is_alike, queue)]
    if any(task.begun and task.seconds > seconds for task in batch):
        batch = [*filter(is_alike, queue)]
    return batch or [queue[0]]


def in_time(batch: Sequence[Task], seconds: float, cpus: int, gpus: int = 1) -> tuple[list[Task], list[Task], float]:
    """Split tasks into those that run within `seconds` on `cpus` processors, in their order, and those that have no time.
    Returns also the seconds until the last one ends, all by the estimates.

    Fits that were begun come first, and run even if they do not end. Then the longest comes first, so that short ones fill the
    end, but only if it takes at most half of the seconds: estimates are right within a factor of two, and a small budget should
    measure several rows. Longer ones follow, if they can end. A search always runs: it consists of many fits.
    """
    free = [0.0] * slots(batch, cpus, gpus)
    running, late, last = [], [], 0.0

    def turn(task: Task) -> tuple[bool, bool, float]:
        short = task.seconds <= seconds / 2
        return task.begun is None, not short, -task.seconds if short else task.seconds

    for task in sorted(batch, key=turn) if seconds < math.inf else batch:
        start = heapq.heappop(free)
        end = start + task.seconds / (cpus if task.searched else 1)  # whose fits run side by side
        runs = bool(task.searched) or end <= seconds or (task.begun is not None and start < seconds)
        (running if runs else late).append(task)
        heapq.heappush(free, end if runs else start)
        last = max(last, end) if runs else last
    return running, late, min(last, seconds)


def slots(batch: Sequence[Task], cpus: int, gpus: int = 1) -> int:
    """How many of the tasks run side by side; `gpus`: of the machine, if some of them use one."""
    units = [task.unit for task in batch if task.unit]
    on_cpus = cpus // max((unit.cpus for unit in units), default=cpus)
    share = max((unit.gpus for unit in units), default=0)
    return max(1, min(on_cpus, int(gpus / share + 1e-9)) if share else on_cpus)  # 1 / 0.1 is below 10 in some roundings
