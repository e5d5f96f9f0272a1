"""The nodes of a cluster during a sweep, which come and go."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.cluster.alive_nodes import alive_machines
from rankbench.core.errors import ClusterError
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.unsaved import Unsaved

LOOK_EVERY = 5.0  # seconds between two looks at the nodes of a cluster, which come and go


class Nodes(Unsaved, tune.Callback):
    """Looks which nodes a cluster has now, so that one that joins gets trials."""

    def __init__(self, group: Group, look: bool):
        self.group, self.look, self.looked = group, look, time.monotonic()

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if self.look and time.monotonic() - self.looked > LOOK_EVERY:
            with suppress(ClusterError):  # a head that is gone for good ends the process (see `session`)
                self.group.dispatch.machines = alive_machines()
            self.looked = time.monotonic()
