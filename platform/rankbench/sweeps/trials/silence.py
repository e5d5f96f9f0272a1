"""A warning when a fit does not report any more: a worker that hangs holds its trial, and nothing else would say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.sweeps.running import Running, RunningFit
from rankbench.sweeps.trials.unsaved import Unsaved


class Silence(Unsaved, tune.Callback):
    """Calls `warn` once for each time that a fit falls silent."""

    def __init__(self, running: Running, warn: Callable[[str], None]):
        self.running, self.warn = running, warn
        self._told: list[RunningFit] = []  # those that are silent, and known to be

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        silent = [(fit, seconds) for fit in self.running.fits if (seconds := fit.silence) is not None]
        for fit, seconds in silent:
            if not any(fit is each for each in self._told):
                self.warn(
                    f"{fit.title}: no report for {seconds:.0f} s, where {fit.longest:.0f} s was the longest time before "
                    f"({fit.place}); if it hangs, end that process, and the fit is run again"
                )
        self._told = [fit for fit, _ in silent]
