"""Passes on what the trials of Ray Tune report about their fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.sweeps.running import Running
from rankbench.sweeps.trials.unsaved import Unsaved
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import record_of

ITERATION, VALID = "rankbench/iteration", "rankbench/valid"  # in a result; with a prefix, since Tune has names of its own
BEGUN, ROWS = "rankbench/begun", "rankbench/rows"  # JSON: what is known of the record, in the first report, and new rows


class Reports(Unsaved, tune.Callback):
    """Tells `running` which units run, how far they are, and rows of their curves. `unit_of` returns the unit of a trial."""

    def __init__(self, unit_of: Callable[[Trial], Unit], running: Running):
        self.unit_of, self.running = unit_of, running

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

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self.running.step()

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.running.leave(trial.trial_id)

    on_trial_error = on_trial_complete
