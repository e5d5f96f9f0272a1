"""The plan on Ray Tune: every unit is a trial, every trial writes its own records, a failed one leaves its reason.

A fit works in the threads of its trial and starts no tasks of its own, so trials that wait for one another cannot be.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rankbench import experiment
from rankbench.checkpoint import Checkpoints
from rankbench.cluster.machine import Needs
from rankbench.cluster.session import Session
from rankbench.fitting import Step
from rankbench.memory import Spill
from rankbench.settings import Settings
from rankbench.sweeps.held import Held
from rankbench.sweeps.placement import placed, require_place
from rankbench.sweeps.plan import Ask, Unit
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.spec import ExperimentSpec, SearchSpec
from rankbench.sweeps.study import Study
from rankbench.sweeps.waiting import Waiting
from rankbench.tracking.record import RunRecord, find_record, read_records, remove_record, write_record

ATTEMPTS = 2  # at a unit whose worker vanishes: killed, out of memory, a node gone
SAVE_EVERY = 15.0  # seconds between checkpoints of a fit by iterations
OnDone = Callable[[Unit, list[RunRecord], bool], None]  # the last: it was there before
LOOK = "rankbench/look/"  # names of ours carry a prefix: Tune gives plain ones a meaning


def run_units(
    units: Sequence[Unit],
    settings: Settings,
    records: Path,
    session: Session,
    spec: ExperimentSpec,
    on_done: OnDone,
    asks: Sequence[Ask] = (),
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
        if len(done) < len(unit.job.settings) and earlier and earlier.adopt(unit, records):
            done = _settled(unit, records)
        if len(done) == len(unit.job.settings):
            search.known(unit, done)
            on_done(unit, done, True)
        else:
            waiting.append(unit)
    asks = [search.resumed(ask, on_done) for ask in asks]
    for each in (*waiting, *(ask.draft for ask in asks)):
        require_place(each, machines, resources, "this machine" if session.local else "the cluster")
    # Units of equal needs form one Tuner, since Tune gives all trials of a Tuner the same resources.
    for needs in sorted({each.needs for each in (*waiting, *(ask.draft for ask in asks))}):
        alike = [unit for unit in waiting if unit.needs == needs]
        drawing = [ask for ask in asks if ask.draft.needs == needs]
        room = sum(machine.places(needs) for machine in machines)
        concurrent = resources.concurrent
        bound = room if concurrent == "auto" else min(int(concurrent), room)
        lost: list[tuple[Unit, str]] = []
        for _ in range(ATTEMPTS):
            lost = _tune(alike, drawing, search, settings, needs, bound, on_done, warn)
            alike, drawing = [unit for unit, _ in lost], []
            if not alike:
                break
        for unit, reason in lost:
            for setting in unit.job.settings:
                write_record(records, experiment.failure(unit.job, setting, f"the worker was lost: {reason}"), None)
            on_done(unit, all_records(unit, records), False)
    for left in (_checkpoints(records), records.parent / "spill"):
        shutil.rmtree(left, ignore_errors=True)
    ids = dict.fromkeys(unit.job.run_id(each) for unit in (*units, *search.drawn) for each in unit.job.settings)
    for record in search.replaced:
        if record.id not in ids:
            remove_record(records, record)
    return [record for record in (find_record(records / name) for name in ids) if record]


class _Search:
    """What the driver knows of the trials of a stage: the study of each dataset and arm, and who fell behind."""

    def __init__(self, records: Path, search: SearchSpec):
        self.records, self.spec = records, search
        self.studies: dict[tuple[str, str], Study] = {}
        self.drawn: list[Unit] = []
        self.replaced: list[RunRecord] = []  # failed draws of an earlier part of this sweep, which new draws stand in for
        self.looks: dict[str, list[dict[str, float]]] = {}
        self.stopped: set[str] = set()

    def resumed(self, ask: Ask, on_done: OnDone) -> Ask:
        """`ask` less the trials that an earlier part of this sweep has run; their records tell the study what was found."""
        mine = [
            record
            for record in read_records(self.records)
            if (record.stage, record.dataset["name"], record.arm) == ("search", ask.card.name, ask.arm.label)
        ]
        for record in mine:
            if record.failed:
                self.replaced.append(record)
                continue
            unit = ask.unit({name: record.params[name] for name in self.study(ask.draft, ask).space})
            self.drawn.append(unit)
            on_done(unit, [record], True)
        kept = [record for record in mine if not record.failed]
        self.study(ask.draft, ask).replay(kept, self.spec.choose.metric)
        return replace(ask, trials=max(0, ask.trials - len(kept)))

    def known(self, unit: Unit, found: list[RunRecord]) -> None:
        if self.prunes(unit):
            self.study(unit).replay(found, self.spec.choose.metric)

    def study(self, unit: Unit, ask: Ask | None = None) -> Study:
        """The study that a unit belongs to."""
        first = unit.job.settings[0]
        key = unit.job.card.name, first.arm or first.method
        if key not in self.studies:
            epochs = getattr(first.params, "epochs", 0)
            self.studies[key] = Study("/".join(key), ask.arm.params if ask else {}, self.spec, epochs)
        return self.studies[key]

    def prunes(self, unit: Unit) -> bool:
        """Whether a unit may be ended at a look."""
        (*others, first) = unit.job.settings
        stage = unit.job.stage == "search" and self.spec.scheduler != "none"
        return stage and not others and experiment.stops_early(first)

    def draw(self, ask: Ask, trial_id: str) -> tuple[Unit, dict[str, Any]]:
        values = self.study(ask.draft, ask).draw(trial_id)
        unit = ask.unit(values)
        self.drawn.append(unit)
        return unit, values

    def again(self, unit: Unit, trial_id: str, on_done: OnDone) -> bool:
        """Whether a drawn unit was drawn before, and is over; then its study hears what came out."""
        found = _settled(unit, self.records)
        if found:
            if not found[0].finished:
                self.stopped.add(trial_id)
            self.end(unit, trial_id)
            on_done(unit, found, True)
        return bool(found)

    def look(self, unit: Unit, trial_id: str, row: dict[str, float]) -> bool:
        """Whether the trial should end; `row` is the newest of its curve."""
        self.looks.setdefault(trial_id, []).append(row)
        if self.study(unit).look(trial_id, row["iteration"], row["valid"]):
            self.stopped.add(trial_id)
        return trial_id in self.stopped

    def end(self, unit: Unit, trial_id: str) -> None:
        """A trial is over. One that was stopped left no record, so it is written here."""
        first = unit.job.settings[0]
        if trial_id in self.stopped and not _settled(unit, self.records):
            rows = self.looks[trial_id]
            reason = (
                f"stopped by {self.spec.scheduler} after epoch {rows[-1]['iteration']}, "
                f"{first.params.stop_metric} on valid {rows[-1]['valid']:.4f}"
            )
            write_record(self.records, experiment.stopped(unit.job, first, reason, rows), None)
        if (unit.job.card.name, first.arm or first.method) in self.studies:
            (*_, record) = all_records(unit, self.records) or [None]
            finished = record is not None and record.finished
            value = record.metrics[self.spec.choose.metric]["mean"] if finished else None
            self.study(unit).end(trial_id, value, trial_id in self.stopped)


@dataclass
class _Group:
    """The trials of one Tuner: planned units by position, drawn ones by the name of their trial."""

    units: list[Unit]
    asks: list[Ask]
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

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        if self.next < len(self.group.units):
            self.next += 1
            return {"unit": self.next - 1}
        while any(self.left):
            position = self.turn % len(self.left)
            self.turn += 1
            if not self.left[position]:
                continue
            self.left[position] -= 1
            unit, values = self.group.search.draw(self.group.asks[position], trial_id)
            # In a small space a draw may come again: it counts, and is not run again.
            if not self.group.search.again(unit, trial_id, self.on_done):
                self.group.trials[trial_id] = unit
                return {"ask": position, "values": values}
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """The study hears of it from the record, which says more than Tune's result."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()


class _Scheduler(FIFOScheduler):
    """Ends a trial whose study says so."""

    def __init__(self, group: _Group):
        super().__init__()
        self.group = group

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict) -> str:
        row = {name.removeprefix(LOOK): value for name, value in result.items() if name.startswith(LOOK)}
        if not row:
            return TrialScheduler.CONTINUE
        behind = self.group.search.look(self.group.unit_of(trial), trial.trial_id, row)
        return TrialScheduler.STOP if behind else TrialScheduler.CONTINUE


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
        self.group.search.end(unit, trial.trial_id)
        self.on_done(unit, all_records(unit, self.records), False)

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        words = str(trial.get_error() or trial.get_pickled_error() or "").strip().splitlines()
        unit = self.group.unit_of(trial)
        self.group.search.end(unit, trial.trial_id)
        self.lost.append((unit, words[-1] if words else "it left no message"))


def _tune(
    units: list[Unit],
    asks: list[Ask],
    search: _Search,
    settings: Settings,
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
            _Trial, units=units, asks=asks, settings=settings, records=records, prunes=search.spec.scheduler != "none"
        ),
        {"CPU": needs.cpus, "memory": needs.memory_bytes} | ({"GPU": needs.gpus} if needs.gpus else {}),
    )
    storage = records.parent / "tune"
    watcher = _Watcher(group, records, on_done)
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
            storage_path=str(storage),
            verbose=0,
            callbacks=[watcher, Waiting(needs, warn)],
            # Tune's own retry waits for ever on the worker that it kept for reuse; run_units retries instead.
            failure_config=tune.FailureConfig(max_failures=0),
            # Fits save their own state, in a form that no pickle is needed to read.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    # A lost worker is this file's to report, in one line; Tune would print its stack.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    tuner.fit()
    # Tune's own state serves nobody: a sweep is continued from its records.
    shutil.rmtree(storage, ignore_errors=True)
    return watcher.lost


class _Trial(tune.Trainable):
    """One unit a trial, in a worker. What the rooms raise becomes a record; only a lost worker is Tune's to report."""

    def setup(self, config: dict, units: list[Unit], asks: list[Ask], settings: Settings, records: Path, prunes: bool) -> None:
        self.units, self.asks, self.settings, self.records, self.prunes = units, asks, settings, records, prunes
        self.held: Held | None = None
        self._take(config)

    def reset_config(self, new_config: dict) -> bool:
        self.cleanup()
        self._take(new_config)
        return True

    def cleanup(self) -> None:
        if self.held:
            self.held.give_up()
            self.held = None
            shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _take(self, config: dict) -> None:
        self.unit = self.units[config["unit"]] if "unit" in config else self.asks[config["ask"]].unit(config["values"])
        first = self.unit.job.settings[0]
        self._checkpoints = _checkpoints(self.records) / self.unit.job.run_id(first)
        # One that nobody stops goes through in one step.
        if self.prunes and self.unit.job.stage == "search" and experiment.stops_early(first):
            self.held = Held(self._run)

    def step(self) -> dict:
        job, failed = self.unit.job, 0
        try:
            if self.held and (look := self.held.next()):
                row = {"iteration": look.number, "seconds": round(look.seconds, 4), "loss": look.loss, "valid": look.valid}
                return {LOOK + name: value for name, value in row.items()}
            if not self.held:
                self._run()
        except Exception as error:
            for setting in job.settings:
                write_record(self.records, experiment.failure(job, setting, error), None)
            failed = len(job.settings)
        self.held = None
        return {"done": True, "rankbench/settings": len(job.settings), "rankbench/failed": failed}

    def _run(self, on_look: Callable[[Step], None] = lambda step: None) -> None:
        checkpoints = None
        if self.unit.job.settings[0].solver.iterate:
            checkpoints = Checkpoints(self._checkpoints, resume=True, every=SAVE_EVERY)
        spill = Spill(self.records.parent / "spill", self.unit.memory_bytes, resume=True) if self.unit.tiled else None
        more = {"checkpoints": checkpoints, "on_look": on_look, "spill": spill, "device": self.unit.device}
        outcomes = experiment.run(self.unit.job, self.settings, n_threads=self.unit.cpus, **more)
        for outcome in outcomes:
            write_record(self.records, outcome.record, outcome.per_user)
        if checkpoints:
            checkpoints.clear()


def _checkpoints(records: Path) -> Path:
    return records.parent / "checkpoints"


def _settled(unit: Unit, records: Path) -> list[RunRecord]:
    return [record for record in all_records(unit, records) if not record.failed]


def all_records(unit: Unit, records: Path) -> list[RunRecord]:
    found = [find_record(records / unit.job.run_id(setting)) for setting in unit.job.settings]
    return [record for record in found if record]
