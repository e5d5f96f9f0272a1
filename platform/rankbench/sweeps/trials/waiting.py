"""A warning when a trial waits for resources of the cluster, which Ray would do forever and silently."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.cluster.advice import advice
from rankbench.cluster.alive_nodes import alive_machines
from rankbench.cluster.machine import Needs, described
from rankbench.cluster.ray_internals import log_folder
from rankbench.sweeps.trials.unsaved import Unsaved

PATIENCE = 60.0  # seconds


class Waiting(Unsaved, tune.Callback):
    """Calls `warn` once if a trial, whose needs `needs_of` returns, is pending for more than `PATIENCE` seconds. What may be
    wrong with this machine is said where the cluster is `local`.
    """

    def __init__(self, needs_of: Callable[[Trial], Needs], warn: Callable[[str], None], local: bool):
        self.needs_of, self.warn, self.local = needs_of, warn, local
        self._since: dict[str, float] = {}
        self._warned = False

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        now = time.monotonic()
        pending = {trial.trial_id: trial for trial in trials if trial.status == Trial.PENDING}
        self._since = {name: self._since.get(name, now) for name in pending}
        late = [pending[name] for name, since in self._since.items() if now - since > PATIENCE]
        if late and not self._warned:
            self._warned = True
            offered = described(alive_machines())
            self.warn(
                f"no worker for a trial after {PATIENCE:.0f} s: it needs {self.needs_of(late[0])}, the cluster has {offered}; "
                f"see {log_folder()}" + (f"; {advice(0)}" if self.local else "")
            )
