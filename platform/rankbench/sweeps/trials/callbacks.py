"""Callbacks of Ray Tune: they pass on what trials report of their fits, look which nodes there are, and warn of what hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.cluster.advice import advice
from rankbench.cluster.alive_nodes import alive_machines
from rankbench.cluster.machine import Needs, described
from rankbench.cluster.ray_internals import log_folder
from rankbench.core.errors import ClusterError
from rankbench.sweeps.running import Running, RunningFit
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import record_of

ITERATION, VALID = "rankbench/iteration", "rankbench/valid"  # in a result; with a prefix, since Tune has names of its own
BEGUN, ROWS = "rankbench/begun", "rankbench/rows"  # JSON: what is known of the record, in the first report, and new rows
UNSAVED = "rankbench/unsaved"  # why the last checkpoint could not be saved, if it could not
LOOK_EVERY = 5.0  # seconds between two looks at the nodes of a cluster, which come and go
PATIENCE = 60.0  # seconds that a trial waits for resources before it is said


class Unsaved:
    """Has no state. Tune saves it for a restore, which never happens here: records determine what is still to be run."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Reports(Unsaved, tune.Callback):
    """Tells `running` which units run, how far they are, and rows of their curves. `unit_of` returns the unit of a trial.
    `warn` is called once if a fit goes on without a checkpoint, as on a full disk.
    """

    def __init__(self, unit_of: Callable[[Trial], Unit], running: Running, warn: Callable[[str], None]):
        self.unit_of, self.running, self.warn = unit_of, running, warn
        self._warned = False

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.running.start(trial.trial_id, self.unit_of(trial))

    def on_trial_result(self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any) -> None:
        if ITERATION in result:
            place = f"host {result.get('hostname')}, process {result.get('pid')}"
            self.running.report(trial.trial_id, int(result[ITERATION]), result.get(VALID), place)
        if BEGUN in result:
            record = record_of(json.loads(result[BEGUN]))
            self.running.begin(trial.trial_id, self.unit_of(trial), record)
        if ROWS in result:
            self.running.add(trial.trial_id, json.loads(result[ROWS]))
        if UNSAVED in result and not self._warned:
            self._warned = True
            self.warn(f"{self.unit_of(trial).title}: {result[UNSAVED]}; fits go on without checkpoints of what follows")

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self.running.step()

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.running.leave(trial.trial_id)

    on_trial_error = on_trial_complete


class Silence(Unsaved, tune.Callback):
    """Calls `warn` once for each time that a fit does not report any more: a worker that hangs holds its trial, and nothing
    else would say so. Those of the trials `held` wait for others.
    """

    def __init__(self, running: Running, warn: Callable[[str], None], held: Container[str] = ()):
        self.running, self.warn, self.held = running, warn, held
        self._told: list[RunningFit] = []  # those that are silent, and known to be

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self.running.hold(self.held)
        silent = [(fit, seconds) for fit in self.running.fits if (seconds := fit.silence) is not None]
        for fit, seconds in silent:
            if not any(fit is each for each in self._told):
                self.warn(
                    f"{fit.title}: no report for {seconds:.0f} s, where {fit.longest:.0f} s was the longest time before "
                    f"({fit.place}); if it hangs, end that process, and the fit is run again"
                )
        self._told = [fit for fit, _ in silent]


class Waiting(Unsaved, tune.Callback):
    """Calls `warn` once if a trial is pending for more than `PATIENCE` seconds, or if no node that is alive can take one that
    waits for so long: both would go on forever and silently. What may be wrong with this machine is said where the cluster is
    `local`.
    """

    def __init__(self, group: Group, warn: Callable[[str], None], local: bool):
        self.group, self.warn, self.local = group, warn, local
        self._since: dict[str | Needs, float] = {}
        self._warned = False

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        now = time.monotonic()
        pending: dict[str | Needs, Needs] = {
            trial.trial_id: self.group.needs(self.group.unit_of(trial)) for trial in trials if trial.status == Trial.PENDING
        }
        if unable := self.group.dispatch.unable:
            pending[unable] = unable
        self._since = {name: self._since.get(name, now) for name in pending}
        late = [pending[name] for name, since in self._since.items() if now - since > PATIENCE]
        if late and not self._warned:
            self._warned = True
            offered = described(alive_machines())
            self.warn(
                f"no worker for a trial after {PATIENCE:.0f} s: it needs {late[0]}, the cluster has {offered}; "
                f"see {log_folder()}" + (f"; {advice(0)}" if self.local else "")
            )


class Nodes(Unsaved, tune.Callback):
    """Looks which nodes a cluster has now, so that one that joins gets trials."""

    def __init__(self, group: Group):
        self.group, self.looked = group, time.monotonic()

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if time.monotonic() - self.looked > LOOK_EVERY:
            with suppress(ClusterError):  # a head that is gone for good ends the process (see `session`)
                self.group.dispatch.machines = alive_machines()
            self.looked = time.monotonic()
