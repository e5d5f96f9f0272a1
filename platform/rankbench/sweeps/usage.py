"""The share of the processors' time that a stage's trials held: what is left is the tail, and what starting workers costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rankbench.cluster.machine import Machine


class Usage:
    """Processor-seconds that trials held and that the machines offered, from the first trial of a stage to the end of the last.

    `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._running: dict[str, tuple[int, float]] = {}  # trial → its processors and its start
        self._cpus = 0
        self._began: float | None = None
        self._looked = 0.0
        self._used = self._offered = self._offered_at_end = 0.0

    @property
    def share(self) -> float | None:
        """The share from 0 to 1; None if no trial has run."""
        return self._used / self._offered_at_end if self._offered_at_end else None

    def offer(self, machines: Sequence[Machine]) -> None:
        """Tell which machines there are from now on."""
        self._count()
        self._cpus = sum(machine.cpus for machine in machines)

    def start(self, trial: str, cpus: int) -> None:
        if self._began is None:
            self._began = self._looked = self._clock()
        self._running[trial] = cpus, self._clock()

    def end(self, trial: str) -> None:
        if trial in self._running:
            cpus, started = self._running.pop(trial)
            self._used += cpus * (self._clock() - started)
            self._count()
            self._offered_at_end = self._offered

    def _count(self) -> None:
        """Add what was offered since the last count."""
        if self._began is not None:
            now = self._clock()
            self._offered += self._cpus * (now - self._looked)
            self._looked = now
