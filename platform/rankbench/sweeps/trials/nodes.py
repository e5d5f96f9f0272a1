"""The nodes of a cluster during a sweep: which there are now, and how long their processors worked."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.cluster.alive_nodes import alive_machines
from rankbench.core.errors import ClusterError
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.unsaved import Unsaved
from rankbench.sweeps.usage import Usage

LOOK_EVERY = 5.0  # seconds between two looks at the nodes of a cluster, which come and go


class Nodes(Unsaved, tune.Callback):
    """Counts the time of the processors, and looks which nodes a cluster has now, so that one that joins gets trials."""

    def __init__(self, group: Group, usage: Usage, look: bool):
        self.group, self.usage, self.look, self.looked = group, usage, look, time.monotonic()

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
