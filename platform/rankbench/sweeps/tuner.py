"""Runs the units of a stage as trials of Ray Tune. Each trial writes its own records; a failed one writes the reason."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ray import tune
from ray.air._internal import usage
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rankbench.cluster.alive_nodes import alive_machines
from rankbench.cluster.machine import Needs, can_run_together, capacity
from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.session import Session
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError
from rankbench.core.plugins import Shipment
from rankbench.experiment.outcome import failure
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.dispatch import Dispatch, Request
from rankbench.sweeps.placement import adapted, require_machine, shared_needs
from rankbench.sweeps.reports import Reports
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.running import Running
from rankbench.sweeps.search import OnDone, Search, records_of, results_of
from rankbench.sweeps.store import OUTGOING, SweepStore
from rankbench.sweeps.trainable import CHECKPOINTS, EVALUATIONS, SPILL, Planned, UnitTrainable
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.sweeps.usage import Usage
from rankbench.sweeps.waiting import Waiting
from rankbench.sweeps.width import widths
from rankbench.tracking.record import RunRecord, find_record

ATTEMPTS = 2  # number of times that a unit is run if its worker is lost: killed, out of memory, or its node is gone
LOOK_EVERY = 5.0  # seconds between two looks at the nodes of a cluster, which come and go
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
    usage: Usage | None = None,
    running: Running | None = None,
    in_order: bool = False,
) -> list[RunRecord]:
    """Run all units, and those that `searches` draw, as trials of Ray Tune; returns a record for each of their settings.

    Records are written to `store` as trials finish, and `on_done` is called for each unit. A setting is not run again if it
    has a finished record there or in an `earlier` sweep, or if its search stopped it. `warn` is called if trials wait for long
    or get several nodes, `usage` counts the time of the processors, and `running` knows how far the fits are. Large units
    start first, so that all end at about the same time; `in_order`: the units start in their order, for a caller who may end
    before all are done.
    Raises StorageError if a unit needs more memory than any machine has, ConfigError if no machine has the rest.
    """
    search, records = Search(store, spec.search), store.records
    running = running or Running()
    running.expect(len(units) + sum(each.trials for each in searches))
    to_run = []

    def ended(unit: Unit, results: list[RunRecord], cached: bool) -> None:
        on_done(unit, results, cached)
        running.end()

    machines, resources = session.machines, spec.resources
    units = [adapted(unit, machines, resources) for unit in units]
    searches = [replace(each, draft=adapted(each.draft, machines, resources)) for each in searches]
    for unit in units:
        results = results_of(unit, records)
        if len(results) < len(unit.job.configs) and earlier and earlier.adopt(unit, store):
            results = results_of(unit, records)
        if len(results) == len(unit.job.configs):
            ended(unit, results, True)
        else:
            to_run.append(unit)
    for unit in units:
        search.add(unit)
    for unit in (*to_run, *(each.draft for each in searches)):
        require_machine(unit, machines, resources, "this machine" if session.local else "the cluster")
    members = [*((unit, 1) for unit in to_run), *((each.draft, each.trials) for each in searches)]
    wide = widths(members, machines, resources, shared_folder=environment.results_store is None)
    for reason in dict.fromkeys(why for _, why in wide if why):
        warn(reason)
    to_run = [unit for unit, _ in wide[: len(to_run)]]
    searches = [replace(each, draft=unit) for each, (unit, _) in zip(searches, wide[len(to_run) :], strict=True)]
    limit = None if resources.concurrent == "auto" else int(resources.concurrent)
    for each in searches:
        concurrent = min(capacity(each.draft.needs, machines), limit or sys.maxsize)
        # The only arm that searches leaves processors idle while it waits for a slow trial, unless its lag is larger.
        search.open([each], lag=concurrent if len(searches) > 1 else 2 * concurrent - 1)
    usage = usage or Usage()
    usage.offer(machines)
    group_searches, lost = searches, []
    for number in range(1, ATTEMPTS + 1 if to_run or searches else 1):
        group = Group(to_run, group_searches, search, Dispatch(machines, limit), in_order)
        lost = _tune(group, environment, session, ended, warn, usage, running, again=number < ATTEMPTS)
        to_run, group_searches = [unit for unit, _ in lost], []
        if not lost:
            break
    for unit, reason in lost:
        attempt = store.trial(unit.run_id, unit.ids)
        for config in unit.job.configs:
            attempt.write(failure(unit.job, config, f"{reason} (the worker was lost {ATTEMPTS} times)"), None)
        store.fetch(unit.ids)
        ended(unit, records_of(unit, records), False)
    # Interrupted fits of other calls go on from checkpoints in the same folder.
    for unit in (*units, *search.drawn):
        shutil.rmtree(store.folder / CHECKPOINTS / unit.run_id, ignore_errors=True)
    with suppress(OSError):  # not empty, or none
        (store.folder / CHECKPOINTS).rmdir()
    for name in (SPILL, OUTGOING):
        shutil.rmtree(store.folder / name, ignore_errors=True)
    ids = dict.fromkeys(unit.job.run_id(config) for unit in (*units, *search.drawn) for config in unit.job.configs)
    return [record for record in (find_record(records / name) for name in ids) if record]


@dataclass
class Group:
    """The units of one Tuner: planned ones by position, drawn ones by the id of their trial."""

    units: list[Unit]
    searches: list[AdaptiveSearch]
    search: Search
    dispatch: Dispatch
    in_order: bool = False
    drawn: dict[str, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs = {unit.needs for unit in (*self.units, *(each.draft for each in self.searches))}
        self._shared = shared_needs(needs, self.dispatch.machines)

    def unit_of(self, trial: Any) -> Unit:
        return self.units[trial.config["unit"]] if "unit" in trial.config else self.drawn[trial.trial_id]

    def shared(self, unit: Unit) -> Needs:
        """The needs of the unit's trial, with as much memory as similar trials have, so that they can share workers."""
        return self._shared[unit.needs]

    def needs(self, unit: Unit) -> Needs:
        """What a trial of the unit reserves now: fewer nodes than planned if the machines that are left have no more."""
        shared = self.shared(unit)
        for nodes in range(shared.nodes, 1, -1):
            if can_run_together([fewer := replace(shared, nodes=nodes)], self.dispatch.machines):
                return fewer
        return replace(shared, nodes=1)


@dataclass(frozen=True)
class _Candidate:
    """A planned unit or the next draw of an adaptive search, by its position."""

    kind: Literal["unit", "search"]
    position: int
    request: Request


class _Queue(Searcher):
    """Suggests the planned units, the largest first or in their order, and draws of each adaptive search in turn, as the
    dispatch allows.

    The units of an arm whose trials are compared with one another start in their order: a trial may wait for earlier ones.
    """

    def __init__(self, group: Group, on_done: OnDone):
        super().__init__()
        self.group, self.on_done = group, on_done
        self.left = dict.fromkeys(range(len(group.units)))
        self.next_search = 0
        self.remaining = [each.trials for each in group.searches]

    def __getstate__(self) -> dict[str, Any]:
        # Tune saves its searcher for a restore, which never happens here: records determine what is still to run.
        return {}

    def suggest(self, trial_id: str) -> Any:
        dispatch = self.group.dispatch
        while self.left or any(self.remaining):
            candidates = [*self._planned(), *self._draws()]
            chosen = dispatch.choose([each.request for each in candidates], time.monotonic())
            if chosen is None:
                return None
            candidate = candidates[chosen]
            config: dict[str, Any] = {candidate.kind: candidate.position, "nodes": candidate.request.needs.nodes}
            if candidate.kind == "unit":
                del self.left[candidate.position]
            else:
                self.next_search = candidate.position + 1
                self.remaining[candidate.position] -= 1
                drawn = self.group.search.draw(self.group.searches[candidate.position], self.on_done)
                if drawn is None:
                    continue
                self.group.drawn[trial_id], config["values"] = drawn
            dispatch.start(trial_id, candidate.request, time.monotonic())
            return config
        return Searcher.FINISHED

    def _planned(self) -> list[_Candidate]:
        """The planned units that may start, those before others that should start first."""
        first: dict[Any, _Candidate] = {}
        for position in self.left:
            unit = self.group.units[position]
            # One unit of each kind is enough for a choice, and there may be thousands.
            kind = unit.arm if self.group.search.prunes else (unit.needs, unit.cost)
            if kind not in first:
                first[kind] = _Candidate("unit", position, Request(self.group.needs(unit), unit.cost))
        return [*first.values()] if self.group.in_order else sorted(first.values(), key=_size, reverse=True)

    def _draws(self) -> Iterator[_Candidate]:
        """The next draws of searches that wait for no running trial, each in its turn."""
        n = len(self.remaining)
        for position in ((self.next_search + ahead) % n for ahead in range(n)):
            search = self.group.searches[position]
            if self.remaining[position] and not self.group.search.waits(search):
                request = Request(self.group.needs(search.draft), search.draft.cost)
                yield _Candidate("search", position, request)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Free the trial's resources. The study reads the record, which has more than Tune's result."""
        self.group.dispatch.end(trial_id)

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
    """Passes the result of each trial on, and collects the trials whose worker was lost.

    With `again`, these are run again at the end, and `warn` is called at once.
    """

    def __init__(self, group: Group, on_done: OnDone, warn: Callable[[str], None], again: bool):
        self.group, self.on_done, self.warn, self.again = group, on_done, warn, again
        self.lost: list[Trial] = []

    def __getstate__(self) -> dict[str, Any]:
        # As in the searcher, nothing is restored.
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        unit, search = self.group.unit_of(trial), self.group.search
        search.end(unit)
        self.on_done(unit, records_of(unit, search.records), False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        unit = self.group.unit_of(trial)
        self.group.search.end(unit)
        self.lost.append(trial)  # Tune stores the error of a trial after it has called this
        if self.again:
            self.warn(f"{unit.title}: its worker was lost; the trial is run again after the others, from its checkpoint if any")

    def reasons(self) -> list[tuple[Unit, str]]:
        """The units whose worker was lost, with the reason. Tune must have ended, and its folder must still exist."""
        errors = [str(trial.get_error() or trial.get_pickled_error() or "") for trial in self.lost]
        return [
            (self.group.unit_of(trial), cause(error.strip().splitlines()))
            for trial, error in zip(self.lost, errors, strict=True)
        ]


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


def _size(candidate: _Candidate) -> tuple[int, Needs, float]:
    request = candidate.request
    return request.needs.all_cpus, request.needs, request.seconds


class _Machines(tune.Callback):
    """Counts the time of the processors, and looks which nodes a cluster has now, so that one that joins gets trials."""

    def __init__(self, group: Group, usage: Usage, look: bool):
        self.group, self.usage, self.look, self.looked = group, usage, look, time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        # As in the searcher, nothing is restored.
        return {}

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if self.look and time.monotonic() - self.looked > LOOK_EVERY:
            with suppress(ClusterError):  # a head that is gone for good ends the process (see `session`)
                self.group.dispatch.machines = alive_machines()
                self.usage.offer(self.group.dispatch.machines)
            self.looked = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        needs = replace(self.group.shared(self.group.unit_of(trial)), nodes=trial.config["nodes"])
        self.usage.start(trial.trial_id, needs.all_cpus)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.usage.end(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.usage.end(trial.trial_id)


def _tune(
    group: Group,
    environment: Environment,
    session: Session,
    on_done: OnDone,
    warn: Callable[[str], None],
    usage: Usage,
    running: Running,
    again: bool,
) -> list[tuple[Unit, str]]:
    """Run the units of a group, planned and drawn; returns those whose worker was lost, with the reason. `again`: whether
    they will be run again.
    """
    units, searches, search = group.units, group.searches, group.search
    of_units = [group.shared(unit) for unit in units]
    of_searches = [group.shared(each.draft) for each in searches]

    def resources(config: dict[str, Any]) -> PlacementGroupFactory:
        needs = of_units[config["unit"]] if "unit" in config else of_searches[config["search"]]
        return PlacementGroupFactory(replace(needs, nodes=config["nodes"]).bundles)

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
    ends = _TrialEnds(group, on_done, warn, again)
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
                trial_dirname_creator=lambda trial: trial.trial_id,
                # A worker starts once and runs trial after trial: its imports take longer than a small fit.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=f"trials-{os.getpid()}",
                storage_path=str(scratch),
                verbose=0,
                progress_reporter=Silent(),
                callbacks=[
                    ends,
                    Waiting(lambda trial: group.needs(group.unit_of(trial)), warn),
                    Reports(group.unit_of, running),
                    _Machines(group, usage, look=not session.local),
                ],
                # Tune's own retry waits forever for the worker that it kept for reuse; run_units retries instead.
                failure_config=tune.FailureConfig(max_failures=0),
                # Fits save their own state, in a format that needs no pickle.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        tuner.fit()
        return ends.reasons()
