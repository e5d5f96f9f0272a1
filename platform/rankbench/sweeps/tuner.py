"""The plan on Ray Tune: every unit is a trial, every trial writes its own records, a failed one leaves its reason.

A fit works in the threads of its trial and starts no tasks of its own, so trials that wait for one another cannot be.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rankbench.cluster.machine import Needs
from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.memory import Spill
from rankbench.experiment.execution import Execution
from rankbench.experiment.outcome import failure, stopped
from rankbench.experiment.run import run_stepwise
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.drive import Row
from rankbench.fitting.method import Iterative
from rankbench.schema.experiment import ExperimentSpec, SearchSpec
from rankbench.sweeps.draws import Draws
from rankbench.sweeps.placement import placed, require_place
from rankbench.sweeps.plan import AdaptiveSearch, Unit
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.study import Study
from rankbench.sweeps.waiting import Waiting
from rankbench.tracking.record import RunRecord, find_record, write_record

ATTEMPTS = 2  # at a unit whose worker vanishes: killed, out of memory, a node gone
SAVE_EVERY = 15.0  # seconds between checkpoints of a fit by iterations
OnDone = Callable[[Unit, list[RunRecord], bool], None]  # the last: it was there before
LOOKS = "rankbench/looks"  # names of ours carry a prefix: Tune gives plain ones a meaning
STARVED = 600.0  # seconds that trials wait at most for one that has found no machine to start on
log = logging.getLogger(__name__)


def run_units(
    units: Sequence[Unit],
    environment: Environment,
    records: Path,
    session: Session,
    spec: ExperimentSpec,
    on_done: OnDone,
    asks: Sequence[AdaptiveSearch] = (),
    earlier: Earlier | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> list[RunRecord]:
    """Run all units, and the trials that `asks` draw, as trials of a Tuner; returns a record for each of their settings.

    Records appear in `records` as trials finish, and `on_done` hears of each unit. A setting that has a finished record
    there or in an `earlier` sweep, or one that its search stopped, is not run again. `warn` hears of trials that wait for
    long. Raises StorageError when a unit needs more memory than any machine has, ConfigError when none has the rest.
    """
    search = _Search(records, spec.search)
    waiting = []
    machines, resources = session.machines, spec.resources
    units = [placed(unit, machines, resources) for unit in units]
    asks = [replace(ask, draft=placed(ask.draft, machines, resources)) for ask in asks]
    for unit in units:
        done = _settled(unit, records)
        if len(done) < len(unit.job.configs) and earlier and earlier.adopt(unit, records):
            done = _settled(unit, records)
        if len(done) == len(unit.job.configs):
            on_done(unit, done, True)
        else:
            waiting.append(unit)
    # Numbered in the order in which they start, which the groups below decide first.
    for unit in sorted(units, key=lambda unit: unit.needs):
        search.enter(unit)
    for each in (*waiting, *(ask.draft for ask in asks)):
        require_place(each, machines, resources, "this machine" if session.local else "the cluster")
    # Units of equal needs form one Tuner, since Tune gives all trials of a Tuner the same resources.
    for needs in sorted({each.needs for each in (*waiting, *(ask.draft for ask in asks))}):
        alike = [unit for unit in waiting if unit.needs == needs]
        drawing = [ask for ask in asks if ask.draft.needs == needs]
        room = sum(machine.places(needs) for machine in machines)
        concurrent = resources.concurrent
        bound = room if concurrent == "auto" else min(int(concurrent), room)
        # An arm that searches alone leaves processors idle while it waits for a slow trial, unless it looks further back.
        search.open(drawing, lag=bound if len(drawing) > 1 else 2 * bound - 1)
        lost: list[tuple[Unit, str]] = []
        for _ in range(ATTEMPTS):
            lost = _tune(alike, drawing, search, environment, needs, bound, on_done, warn)
            alike, drawing = [unit for unit, _ in lost], []
            if not alike:
                break
        for unit, reason in lost:
            for config in unit.job.configs:
                write_record(records, failure(unit.job, config, f"the worker was lost: {reason}"), None)
            on_done(unit, all_records(unit, records), False)
    for left in (_checkpoints(records), records.parent / "spill"):
        shutil.rmtree(left, ignore_errors=True)
    ids = dict.fromkeys(unit.job.run_id(each) for unit in (*units, *search.drawn) for each in unit.job.configs)
    return [record for record in (find_record(records / name) for name in ids) if record]


class _Search:
    """What the driver knows of the trials of a stage: the study of each dataset and arm, and the place of each trial in it.

    Trials go by the id of their run here, since one whose worker was lost is run again as another trial of Tune.
    """

    def __init__(self, records: Path, search: SearchSpec):
        self.records, self.spec = records, search
        self.draws = Draws(records.parent / "draws.jsonl")
        self.studies: dict[tuple[str, str], Study] = {}
        self.places: dict[str, tuple[Study, int]] = {}
        self.drawn: list[Unit] = []
        self.looks: dict[str, list[dict[str, float]]] = {}
        self.stopped: set[str] = set()

    def enter(self, unit: Unit) -> None:
        """Number a planned unit among the trials of its arm, if it can be ended there; one that is over tells what it found."""
        if not self.prunes(unit):
            return
        key = _arm(unit)
        if key not in self.studies:
            self.studies[key] = self._study(unit, {})
        self._place(unit, self.studies[key].start())
        self._settle(unit)

    def open(self, asks: Sequence[AdaptiveSearch], lag: int) -> None:
        for ask in asks:
            study = self._study(ask.draft, ask.arm.params)
            study.lag = self.draws.lag(study.name, lag)
            self.studies[_arm(ask.draft)] = study

    def prunes(self, unit: Unit) -> bool:
        """Whether a unit may be ended at a look."""
        return self.spec.scheduler != "none" and _can_end_early(unit)

    def waits(self, ask: AdaptiveSearch) -> bool:
        """Whether the next draw depends on a trial that still runs."""
        return self.studies[_arm(ask.draft)].waits

    def draw(self, ask: AdaptiveSearch, on_done: OnDone) -> tuple[Unit, dict[str, Any]] | None:
        """The next draw, or None where it is over already: an interrupted sweep ran it, or an earlier draw was the same."""
        study = self.studies[_arm(ask.draft)]
        known = self.draws.drawn(study.name, study.next)
        number = study.next
        values, repeats = study.draw(known)
        if known is None:
            self.draws.add(study.name, values)
        unit = ask.unit(values)
        if repeats is not None:
            on_done(unit, _settled(unit, self.records), True)
            return None
        self.drawn.append(unit)
        self._place(unit, number)
        if self._settle(unit):
            on_done(unit, _settled(unit, self.records), True)
            return None
        return unit, values

    def look(self, unit: Unit, rows: list[dict[str, float]]) -> None:
        """`rows`: the newest of the unit's curve; of one that went on from a checkpoint, the earlier ones, too."""
        study, number = self.places[_run(unit)]
        known = self.looks.setdefault(_run(unit), [])
        for row in rows:
            if not known or row["iteration"] > known[-1]["iteration"]:
                known.append(row)
                study.look(number, row["iteration"], row["valid"])

    def behind(self, unit: Unit, wait: bool = True) -> bool | None:
        """Whether a unit should end at its latest look; None while that depends on another one."""
        study, number = self.places[_run(unit)]
        behind = _run(unit) in self.stopped or study.behind(number, wait)
        if behind:
            self.stopped.add(_run(unit))
        return behind

    def end(self, unit: Unit) -> None:
        """A trial is over. One that was stopped left no record, so it is written here."""
        if _run(unit) not in self.places:
            return
        if _run(unit) in self.stopped and not _settled(unit, self.records):
            rows, first = self.looks[_run(unit)], unit.job.configs[0]
            reason = (
                f"stopped by {self.spec.scheduler} after epoch {rows[-1]['iteration']}, "
                f"{first.stopping.stop_metric} on valid {rows[-1]['valid']:.4f}"
            )
            write_record(self.records, stopped(unit.job, first, reason, rows), None)
        if not self._settle(unit):
            study, number = self.places[_run(unit)]
            study.end(number, None)

    def _study(self, unit: Unit, params: dict[str, Any]) -> Study:
        first = unit.job.configs[0]
        limit = first.spec.limit(first.params) if isinstance(first.spec, Iterative) else 0
        return Study("/".join(_arm(unit)), params, self.spec, limit)

    def _place(self, unit: Unit, number: int) -> None:
        self.places[_run(unit)] = self.studies[_arm(unit)], number

    def _settle(self, unit: Unit) -> bool:
        """Tell the study what the record of a unit says, if it has one that is not a failure."""
        found = _settled(unit, self.records)
        if found:
            (record,) = found
            self.look(unit, [row for row in record.curve if "valid" in row])
            study, number = self.places[_run(unit)]
            value = record.metrics[self.spec.choose.metric].mean if record.finished else None
            study.end(number, value, stopped=not record.finished)
        return bool(found)


@dataclass
class _Group:
    """The trials of one Tuner: planned units by position, drawn ones by the name of their trial."""

    units: list[Unit]
    asks: list[AdaptiveSearch]
    search: _Search
    trials: dict[str, Unit] = field(default_factory=dict)

    def unit_of(self, trial: Any) -> Unit:
        config = trial.config
        return self.units[config["unit"]] if "unit" in config else self.trials[trial.trial_id]


class _Queue(Searcher):
    """Planned units in their order, then draws, an arm in turn."""

    def __init__(self, group: _Group, on_done: OnDone):
        super().__init__()
        self.group, self.on_done, self.next = group, on_done, 0
        self.left = [ask.trials for ask in group.asks]
        self.turn = 0

    def __getstate__(self) -> dict:
        # Tune saves its searcher for a restore, which never happens here: records decide what is left to do.
        return {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self.next < len(self.group.units):
            self.next += 1
            return {"unit": self.next - 1}
        arms = len(self.left)
        while any(self.left):
            # An arm in turn, of those whose next draw depends on no trial that still runs.
            turns = [(self.turn + ahead) % arms for ahead in range(arms)]
            free = [at for at in turns if self.left[at] and not self.group.search.waits(self.group.asks[at])]
            if not free:
                return None
            position = free[0]
            self.turn = position + 1
            self.left[position] -= 1
            if drawn := self.group.search.draw(self.group.asks[position], self.on_done):
                self.group.trials[trial_id], values = drawn
                return {"ask": position, "values": values}
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """The study hears of it from the record, which says more than Tune's result."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()


class _Scheduler(FIFOScheduler):
    """Ends a trial whose study says so, and holds one at its look as long as that depends on an earlier trial."""

    def __init__(self, group: _Group):
        super().__init__()
        self.group = group
        self.held: dict[str, Any] = {}
        self.moved = time.monotonic()

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict) -> str:
        if LOOKS not in result:
            return TrialScheduler.CONTINUE
        self.group.search.look(self.group.unit_of(trial), json.loads(result[LOOKS]))
        return self._decide(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        # Tune asks this in every round, and has no other way to let a trial go on after its result was answered.
        for trial in [*self.held.values()]:
            decision = self._decide(trial, wait=not self._starved(tune_controller))
            if decision != TrialScheduler.NOOP:
                tune_controller._tune_controller._execute_action(trial, decision)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict) -> None:
        self.held.pop(trial.trial_id, None)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        self.held.pop(trial.trial_id, None)

    def _decide(self, trial: Any, wait: bool = True) -> str:
        behind = self.group.search.behind(self.group.unit_of(trial), wait)
        if behind is None:
            self.held[trial.trial_id] = trial
            return TrialScheduler.NOOP
        self.held.pop(trial.trial_id, None)
        self.moved = time.monotonic()
        return TrialScheduler.STOP if behind else TrialScheduler.CONTINUE

    def _starved(self, tune_controller: Any) -> bool:
        """Whether every running trial waits for one that does not start, as when a node of the cluster is gone."""
        running = [trial for trial in tune_controller.get_live_trials() if trial.status == "RUNNING"]
        if any(trial.trial_id not in self.held for trial in running):
            self.moved = time.monotonic()
        if time.monotonic() - self.moved < STARVED:
            return False
        log.warning("a trial that others are compared with has not started for %.0f s; they go on without it", STARVED)
        return True


class _Watcher(tune.Callback):
    """Hands finished units on, and remembers those whose worker was lost."""

    def __init__(self, group: _Group, records: Path, on_done: OnDone):
        self.group, self.records, self.on_done = group, records, on_done
        self.lost: list[tuple[Unit, str]] = []

    def __getstate__(self) -> dict:
        # As the searcher: nothing is restored.
        return {}

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        unit = self.group.unit_of(trial)
        self.group.search.end(unit)
        self.on_done(unit, all_records(unit, self.records), False)

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        words = str(trial.get_error() or trial.get_pickled_error() or "").strip().splitlines()
        unit = self.group.unit_of(trial)
        self.group.search.end(unit)
        self.lost.append((unit, words[-1] if words else "it left no message"))


def _tune(
    units: list[Unit],
    asks: list[AdaptiveSearch],
    search: _Search,
    environment: Environment,
    needs: Needs,
    concurrent: int,
    on_done: OnDone,
    warn: Callable[[str], None],
) -> list[tuple[Unit, str]]:
    """Run `units` and the draws of `asks`; returns those whose worker was lost, with what is known of it."""
    group = _Group(units, asks, search)
    records = search.records
    trainable = tune.with_resources(
        tune.with_parameters(
            _Trial, units=units, asks=asks, environment=environment, records=records, prunes=search.spec.scheduler != "none"
        ),
        {"CPU": needs.cpus, "memory": needs.memory_bytes} | ({"GPU": needs.gpus} if needs.gpus else {}),
    )
    watcher = _Watcher(group, records, on_done)
    # A lost worker is this file's to report, in one line; Tune would print its stack.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # Tune's own state serves nobody, since a sweep is continued from its records. It stays off the disk of the results: Tune
    # reads it again at the end, and breaks where that disk ran full.
    with private_folder() as scratch:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                num_samples=len(units) + sum(ask.trials for ask in asks),
                search_alg=_Queue(group, on_done),
                scheduler=_Scheduler(group),
                max_concurrent_trials=concurrent,
                trial_dirname_creator=lambda trial: trial.trial_id,
                # A worker starts once and takes trial after trial: its imports cost more than a small fit.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=f"trials-{os.getpid()}",
                storage_path=str(scratch),
                verbose=0,
                callbacks=[watcher, Waiting(needs, warn)],
                # Tune's own retry waits for ever on the worker that it kept for reuse; run_units retries instead.
                failure_config=tune.FailureConfig(max_failures=0),
                # Fits save their own state, in a form that no pickle is needed to read.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
    return watcher.lost


class _Trial(tune.Trainable):
    """One unit a trial, in a worker. What the rooms raise becomes a record; only a lost worker is Tune's to report."""

    def setup(
        self, config: dict, units: list[Unit], asks: list[AdaptiveSearch], environment: Environment, records: Path, prunes: bool
    ) -> None:
        self.units, self.asks, self.environment, self.records, self.prunes = units, asks, environment, records, prunes
        self.run: Generator[list[Row], None, None] | None = None
        self._take(config)

    def reset_config(self, new_config: dict) -> bool:
        self.cleanup()
        self._take(new_config)
        return True

    def cleanup(self) -> None:
        """Give up a run that is under way: its scheduler has ended it."""
        if self.run:
            self.run.close()
            self.run = None
            shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _take(self, config: dict) -> None:
        self.unit = self.units[config["unit"]] if "unit" in config else self.asks[config["ask"]].unit(config["values"])
        self._checkpoints = _checkpoints(self.records) / _run(self.unit)
        self.reported = 0  # evaluations that the driver of the sweep has

    def step(self) -> dict:
        """Run to the next evaluation that a scheduler may end the trial at, or to the end."""
        job, failed = self.unit.job, 0
        stoppable = self.prunes and _can_end_early(self.unit)
        self.run = self.run or self._begin()
        try:
            for curve in self.run:
                if stoppable and "valid" in curve[-1]:
                    # A fit that was resumed reports the evaluations before its checkpoint, too.
                    rows = [row for row in curve if "valid" in row][self.reported :]
                    self.reported += len(rows)
                    return {LOOKS: json.dumps(rows)}
        except Exception as error:
            for config in job.configs:
                write_record(self.records, failure(job, config, error), None)
            failed = len(job.configs)
        self.run = None
        return {"done": True, "rankbench/settings": len(job.configs), "rankbench/failed": failed}

    def _begin(self) -> Generator[list[Row], None, None]:
        unit, checkpoints, spill = self.unit, None, None
        if isinstance(unit.job.configs[0].spec, Iterative):
            checkpoints = Checkpoints(self._checkpoints, resume=True, every=SAVE_EVERY)
        if unit.tiled:
            spill = Spill(self.records.parent / "spill", unit.memory_bytes, resume=True)
        execution = Execution(unit.cpus, device=unit.device, checkpoints=checkpoints, spill=spill)
        outcomes = yield from run_stepwise(unit.job, self.environment, execution)
        for outcome in outcomes:
            write_record(self.records, outcome.record, outcome.per_user)
        if checkpoints:
            checkpoints.clear()


def _checkpoints(records: Path) -> Path:
    return records.parent / "checkpoints"


def _can_end_early(unit: Unit) -> bool:
    """Whether it looks at valid, for itself alone, so that a search can end it there."""
    return unit.job.stage == "search" and len(unit.job.configs) == 1 and unit.job.configs[0].stopping is not None


def _arm(unit: Unit) -> tuple[str, str]:
    first = unit.job.configs[0]
    return unit.job.card.name, first.arm or first.method


def _run(unit: Unit) -> str:
    return unit.job.run_id(unit.job.configs[0])


def _settled(unit: Unit, records: Path) -> list[RunRecord]:
    return [record for record in all_records(unit, records) if not record.failed]


def all_records(unit: Unit, records: Path) -> list[RunRecord]:
    found = [find_record(records / unit.job.run_id(config)) for config in unit.job.configs]
    return [record for record in found if record]
