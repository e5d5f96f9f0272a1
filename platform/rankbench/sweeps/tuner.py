"""Runs the units of a stage as trials of Ray Tune. Each trial writes its own records; a failed one writes the reason."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.air._internal import usage
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rankbench.cluster.machine import Needs
from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.plugins import Shipment
from rankbench.experiment.outcome import failure
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.placement import adapted, require_machine, shared_needs
from rankbench.sweeps.plan import AdaptiveSearch, Unit
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.search import OnDone, Search, records_of, results_of
from rankbench.sweeps.store import OUTGOING, SweepStore
from rankbench.sweeps.trainable import CHECKPOINTS, EVALUATIONS, SPILL, Planned, UnitTrainable
from rankbench.sweeps.waiting import Waiting
from rankbench.tracking.record import RunRecord, find_record

ATTEMPTS = 2  # number of times that a unit is run if its worker is lost: killed, out of memory, or its node is gone
START_TIMEOUT = 600.0  # seconds that held trials wait for an earlier trial that no machine has started
# Tune imports MLflow and others, which takes two seconds, to count callbacks for statistics that are switched off.
usage.tag_callbacks = lambda callbacks: False
log = logging.getLogger(__name__)


def run_units(
    units: Sequence[Unit],
    environment: Environment,
    store: SweepStore,
    session: Session,
    spec: ExperimentSpec,
    on_done: OnDone,
    searches: Sequence[AdaptiveSearch] = (),
    earlier: Earlier | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> list[RunRecord]:
    """Run all units, and those that `searches` draw, as trials of Ray Tune; returns a record for each of their settings.

    Records are written to `store` as trials finish, and `on_done` is called for each unit. A setting is not run again if it
    has a finished record there or in an `earlier` sweep, or if its search stopped it. `warn` is called if trials wait for long.
    Raises StorageError if a unit needs more memory than any machine has, ConfigError if no machine has the rest.
    """
    search, records = Search(store, spec.search), store.records
    to_run = []
    machines, resources = session.machines, spec.resources
    units = [adapted(unit, machines, resources) for unit in units]
    searches = [replace(each, draft=adapted(each.draft, machines, resources)) for each in searches]
    for unit in units:
        results = results_of(unit, records)
        if len(results) < len(unit.job.configs) and earlier and earlier.adopt(unit, store):
            results = results_of(unit, records)
        if len(results) == len(unit.job.configs):
            on_done(unit, results, True)
        else:
            to_run.append(unit)
    # Tune gives all trials of a Tuner the same resources, so there is one Tuner for each of these needs.
    shared = shared_needs({unit.needs for unit in (*units, *(each.draft for each in searches))}, machines)
    # Studies number trials in the order in which they start, which the groups below determine first.
    for unit in sorted(units, key=lambda unit: shared[unit.needs]):
        search.add(unit)
    for unit in (*to_run, *(each.draft for each in searches)):
        require_machine(unit, machines, resources, "this machine" if session.local else "the cluster")
    for needs in sorted({shared[unit.needs] for unit in (*to_run, *(each.draft for each in searches))}):
        group_units = [unit for unit in to_run if shared[unit.needs] == needs]
        group_searches = [each for each in searches if shared[each.draft.needs] == needs]
        capacity = sum(machine.capacity(needs) for machine in machines)
        concurrent = capacity if resources.concurrent == "auto" else min(int(resources.concurrent), capacity)
        # The only arm that searches leaves processors idle while it waits for a slow trial, unless its lag is larger.
        search.open(group_searches, lag=concurrent if len(group_searches) > 1 else 2 * concurrent - 1)
        lost: list[tuple[Unit, str]] = []
        for _ in range(ATTEMPTS):
            group = Group(group_units, group_searches, search)
            lost = _tune(group, environment, needs, concurrent, on_done, warn)
            group_units, group_searches = [unit for unit, _ in lost], []
            if not lost:
                break
        for unit, reason in lost:
            attempt = store.trial(unit.run_id, unit.ids)
            for config in unit.job.configs:
                attempt.write(failure(unit.job, config, f"{reason} (the worker was lost {ATTEMPTS} times)"), None)
            store.fetch(unit.ids)
            on_done(unit, records_of(unit, records), False)
    for name in (CHECKPOINTS, SPILL, OUTGOING):
        shutil.rmtree(store.folder / name, ignore_errors=True)
    ids = dict.fromkeys(unit.job.run_id(config) for unit in (*units, *search.drawn) for config in unit.job.configs)
    return [record for record in (find_record(records / name) for name in ids) if record]


@dataclass
class Group:
    """The units of one Tuner: planned ones by position, drawn ones by the id of their trial."""

    units: list[Unit]
    searches: list[AdaptiveSearch]
    search: Search
    drawn: dict[str, Unit] = field(default_factory=dict)

    def unit_of(self, trial: Any) -> Unit:
        return self.units[trial.config["unit"]] if "unit" in trial.config else self.drawn[trial.trial_id]


class _Queue(Searcher):
    """Suggests the planned units in their order, then draws of each adaptive search in turn."""

    def __init__(self, group: Group, on_done: OnDone):
        super().__init__()
        self.group, self.on_done = group, on_done
        self.next_unit = self.next_search = 0
        self.remaining = [each.trials for each in group.searches]

    def __getstate__(self) -> dict[str, Any]:
        # Tune saves its searcher for a restore, which never happens here: records determine what is still to run.
        return {}

    def suggest(self, trial_id: str) -> Any:
        if self.next_unit < len(self.group.units):
            self.next_unit += 1
            return {"unit": self.next_unit - 1}
        n = len(self.remaining)
        while any(self.remaining):
            turns = [(self.next_search + ahead) % n for ahead in range(n)]
            # The searches whose next draw depends on no trial that still runs.
            ready = [i for i in turns if self.remaining[i] and not self.group.search.waits(self.group.searches[i])]
            if not ready:
                return None
            position = ready[0]
            self.next_search = position + 1
            self.remaining[position] -= 1
            if drawn := self.group.search.draw(self.group.searches[position], self.on_done):
                self.group.drawn[trial_id], values = drawn
                return {"search": position, "values": values}
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the study reads the record, which has more than Tune's result."""

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()


class Scheduler(FIFOScheduler):
    """Stops a trial if its study says so, and holds it at an evaluation while the decision depends on an earlier trial."""

    def __init__(self, group: Group):
        super().__init__()  # type: ignore[no-untyped-call]
        self.group = group
        self.held: dict[str, Any] = {}
        self.last_progress = time.monotonic()  # when a trial last went on or was seen to run

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if EVALUATIONS not in result:
            return TrialScheduler.CONTINUE
        self.group.search.report(self.group.unit_of(trial), json.loads(result[EVALUATIONS]))
        return self._decide(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        # Tune calls this in every round, and has no other way to let a trial go on after its result was answered.
        for trial in [*self.held.values()]:
            decision = self._decide(trial, wait=not self._starved(tune_controller))
            if decision != TrialScheduler.NOOP:
                tune_controller._tune_controller._execute_action(trial, decision)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.held.pop(trial.trial_id, None)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        self.held.pop(trial.trial_id, None)

    def _decide(self, trial: Any, wait: bool = True) -> str:
        stop = self.group.search.should_stop(self.group.unit_of(trial), wait)
        if stop is None:
            self.held[trial.trial_id] = trial
            return TrialScheduler.NOOP
        self.held.pop(trial.trial_id, None)
        self.last_progress = time.monotonic()
        return TrialScheduler.STOP if stop else TrialScheduler.CONTINUE

    def _starved(self, tune_controller: Any) -> bool:
        """Whether every running trial waits for one that does not start, for example because a node of the cluster is gone."""
        running = [trial for trial in tune_controller.get_live_trials() if trial.status == "RUNNING"]
        if any(trial.trial_id not in self.held for trial in running):
            self.last_progress = time.monotonic()
        if time.monotonic() - self.last_progress < START_TIMEOUT:
            return False
        log.warning("no machine has started an earlier trial for %.0f s; the trials that wait for it go on", START_TIMEOUT)
        return True


class _TrialEnds(tune.Callback):
    """Passes the result of each trial on, and collects the units whose worker was lost, with the reason."""

    def __init__(self, group: Group, on_done: OnDone):
        self.group, self.on_done = group, on_done
        self.lost: list[tuple[Unit, str]] = []

    def __getstate__(self) -> dict[str, Any]:
        # As in the searcher, nothing is restored.
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        unit, search = self.group.unit_of(trial), self.group.search
        search.end(unit)
        self.on_done(unit, records_of(unit, search.records), False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        lines = str(trial.get_error() or trial.get_pickled_error() or "").strip().splitlines()
        unit = self.group.unit_of(trial)
        self.group.search.end(unit)
        self.lost.append((unit, cause(lines)))


_MEMORY = "out of memory: Ray ended its worker; run fewer trials at once (resources.concurrent) or use a larger machine"
_DIED = "its worker process died: it was killed, or it crashed"
_CAUSES = {  # part of a message of Ray → what it means
    "OutOfMemory": _MEMORY,
    "low on memory": _MEMORY,
    "node was terminated": "its node was lost",
    "NodeDied": "its node was lost",
    "SYSTEM_ERROR": _DIED,
    "died unexpectedly": _DIED,
}


def cause(lines: Sequence[str]) -> str:
    """Return why a worker was lost, from the lines of Ray's error: a cause that is known, else the last line without the name
    of an exception.
    """
    known = [meaning for part, meaning in _CAUSES.items() if any(part in line for line in lines)]
    last = lines[-1].strip() if lines else "it left no message"
    return known[0] if known else re.sub(r"^(ray\.exceptions\.)?\w+(Error|Exception): ", "", last)


class Silent(tune.ProgressReporter):
    """Reports nothing: without it, Tune clears the output of a notebook's cell, where the sweep shows its own progress."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None: ...


def _tune(
    group: Group,
    environment: Environment,
    needs: Needs,
    concurrent: int,
    on_done: OnDone,
    warn: Callable[[str], None],
) -> list[tuple[Unit, str]]:
    """Run the units of a group, planned and drawn; returns those whose worker was lost, with the reason."""
    units, searches, search = group.units, group.searches, group.search
    resources: dict[str, float] = {"CPU": needs.cpus, "memory": needs.memory_bytes}
    if needs.gpus:
        resources["GPU"] = needs.gpus
    trainable = tune.with_resources(
        tune.with_parameters(
            UnitTrainable,
            planned=Planned(Shipment.of_this_process(), units, searches),
            environment=environment,
            store=search.store,
            prunes=search.prunes,
        ),
        resources,
    )
    ends = _TrialEnds(group, on_done)
    # A lost worker is reported here, in one line; Tune would print its stack.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # Nobody needs Tune's own state, since a sweep is resumed from its records. It stays off the disk of the results, because
    # Tune reads it again at the end and fails if that disk is full.
    with private_folder() as scratch:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                num_samples=len(units) + sum(each.trials for each in searches),
                search_alg=_Queue(group, on_done),
                scheduler=Scheduler(group),
                max_concurrent_trials=concurrent,
                trial_dirname_creator=lambda trial: trial.trial_id,
                # A worker starts once and runs trial after trial: its imports take longer than a small fit.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=f"trials-{os.getpid()}",
                storage_path=str(scratch),
                verbose=0,
                progress_reporter=Silent(),
                callbacks=[ends, Waiting(needs, warn)],
                # Tune's own retry waits forever for the worker that it kept for reuse; run_units retries instead.
                failure_config=tune.FailureConfig(max_failures=0),
                # Fits save their own state, in a format that needs no pickle.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
    return ends.lost
