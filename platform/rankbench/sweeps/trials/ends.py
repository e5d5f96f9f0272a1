"""How trials of Ray Tune end: with results, or because their worker was lost, for a reason that is told in words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from rankbench.sweeps.search.stage import OnDone, records_of
from rankbench.sweeps.trials.callbacks import Unsaved
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.limits import OVERDUE, why_late
from rankbench.sweeps.units import Unit

VISIBLE = 90.0  # seconds until every host sees a new file; NFS may remember for a minute that there was none
UNSEEN = "it ended, but its record does not appear here; do all hosts have the same results folder?"
_MEMORY = "out of memory: Ray ended its worker; run fewer trials at once (resources.concurrent) or use a larger machine"
_DIED = "its worker process died: it was killed, or it crashed"
NODE_LOST = "its node was lost"
_CAUSES = {  # part of a message of Ray → what it means
    "OutOfMemory": _MEMORY,
    "low on memory": _MEMORY,
    "node was terminated": NODE_LOST,
    "NodeDied": NODE_LOST,
    "SYSTEM_ERROR": _DIED,
    "died unexpectedly": _DIED,
}


@dataclass(frozen=True)
class Lost:
    """A unit whose worker was lost, and why."""

    unit: Unit
    reason: str


class TrialEnds(Unsaved, tune.Callback):
    """Passes the result of each trial on, and collects the trials whose worker was lost.

    With `again`, these are run again at the end, and `warn` is called at once. `on_late` is called with each unit that was
    ended because it went over its limit of time, and with the reason: an interrupt must not lose what took so long.
    """

    def __init__(
        self,
        group: Group,
        on_done: OnDone,
        on_late: Callable[[Unit, str], None],
        warn: Callable[[str], None],
        again: bool,
    ):
        self.group, self.on_done, self.on_late, self.warn, self.again = group, on_done, on_late, warn, again
        self.lost: list[Trial] = []
        self.refused: Exception | None = None  # of `on_done`, which Tune would take for an error of the trial

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if self.refused:
            raise self.refused

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        unit, search = self.group.unit_of(trial), self.group.search
        if not search.was_stopped(unit) and not self._has_records(unit):
            self._lost(trial)
            return
        search.end(unit)
        try:
            self.on_done(unit, records_of(unit, search.records), False)
        except Exception as error:
            self.refused = self.refused or error

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._lost(trial)

    def _lost(self, trial: Trial) -> None:
        unit = self.group.unit_of(trial)
        self.group.search.end(unit)
        if reason := why_late(self.group.search.store.folder / OVERDUE / unit.run_id):
            self.on_late(unit, reason)
            return
        self.lost.append(trial)  # Tune stores the error of a trial after it has called this
        if self.again:
            self.warn(f"{unit.title}: its worker was lost; the trial is run again after the others, from its checkpoint if any")

    def _has_records(self, unit: Unit) -> bool:
        """Whether a record of each setting is there, or appears within `VISIBLE` seconds."""
        search, end = self.group.search, time.monotonic() + VISIBLE
        while True:
            search.store.fetch(unit.ids)
            if len(records_of(unit, search.records)) == len(unit.job.configs):
                return True
            if time.monotonic() > end:
                return False
            with suppress(OSError):
                [*search.records.iterdir()]  # reading the folder makes a client of NFS forget that it has not found a name
            time.sleep(0.5)

    def units_lost(self) -> list[Lost]:
        """The units whose worker was lost. Tune must have ended, and its folder must still exist."""
        lost = []
        for trial in self.lost:
            unit, error = self.group.unit_of(trial), str(trial.get_error() or trial.get_pickled_error() or "")
            lost.append(Lost(unit, cause(error.strip().splitlines())))
        return lost


def cause(lines: Sequence[str]) -> str:
    """Return why a worker was lost, from the lines of Ray's error: a cause that is known, else the last line without the name
    of an exception.
    """
    known = [meaning for part, meaning in _CAUSES.items() if any(part in line for line in lines)]
    # The last lines of an error of CUDA say how to compile PyTorch.
    last = next((line for line in lines if "CUDA error" in line), lines[-1] if lines else UNSEEN).strip()
    return known[0] if known else re.sub(r"^(ray\.exceptions\.)?\w+(Error|Exception): ", "", last)
