"""Which trials of Ray Tune go on, stop, or wait for the trial that they are compared with."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from rankbench.cluster.ray_internals import carry_out
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.trainable import EVALUATIONS

START_TIMEOUT = 600.0  # seconds that held trials wait for an earlier trial that no machine has started
log = logging.getLogger(__name__)


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
        """Let the held trials go on that need not wait any more; Tune calls this in every round."""
        for trial in [*self.held.values()]:
            decision = self._decide(trial, wait=not self._starved(tune_controller))
            if decision != TrialScheduler.NOOP:
                carry_out(tune_controller, trial, decision)
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
