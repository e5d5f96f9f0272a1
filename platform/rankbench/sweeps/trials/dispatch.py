"""Which waiting trial starts next, so that trials with unequal needs run side by side.

The trial at the head of the queue starts as soon as the machines can run it. While it waits for others to end, a later one may
start if it fits beside the running ones and, by the estimates, does not delay the head: "EASY" backfilling, as batch systems do
it (Lifka, 1995). Without this rule, small trials would keep a wide one from ever starting; without backfilling, processors
would idle in front of each wide one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankbench.cluster.machine import Machine, Needs, can_run_together


@dataclass(frozen=True)
class Request:
    """A trial that may start: its needs and the estimated seconds that it takes."""

    needs: Needs
    seconds: float


@dataclass(frozen=True)
class _Running:
    needs: Needs
    ends: float  # estimated time


class Dispatch:
    """The running trials on `machines`, which may change, and which trial may be added. `limit`: how many may run at once.

    Placement is only modelled: Ray has the last word, and a trial for which it finds no room simply waits.
    """

    def __init__(self, machines: Sequence[Machine], limit: int | None = None):
        self._machines, self.limit = tuple(machines), limit
        self._running: dict[str, _Running] = {}
        self._stuck: Sequence[Request] = ()  # the queue in which nothing could start; empty after a change

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self._machines

    @machines.setter
    def machines(self, machines: Sequence[Machine]) -> None:
        if self._machines != tuple(machines):
            self._machines, self._stuck = tuple(machines), ()

    def start(self, name: str, trial: Request, now: float) -> None:
        self._running[name] = _Running(trial.needs, now + trial.seconds)
        self._stuck = ()

    def end(self, name: str) -> None:
        self._running.pop(name, None)
        self._stuck = ()

    def choose(self, queue: Sequence[Request], now: float) -> int | None:
        """Return the position in the queue of the trial that starts now; None if all wait."""
        # Tune asks ten times per second; the answer only changes if a trial starts or ends, or the machines change.
        if not queue or queue == self._stuck or (self.limit is not None and len(self._running) >= self.limit):
            return None
        running = [*self._running.values()]
        # Without a running trial nothing would change by itself: then Ray waits for a machine, and says so.
        if not running or self._fits(queue[0].needs, running):
            return 0
        by_then = self._start_of(queue[0].needs, running, now)
        for position, trial in enumerate(queue[1:], start=1):
            if self._fits(trial.needs, running):
                beside = [*running, _Running(trial.needs, now + trial.seconds)]
                if self._start_of(queue[0].needs, beside, now) <= by_then:
                    return position
        self._stuck = tuple(queue)
        return None

    def _fits(self, needs: Needs, running: Sequence[_Running]) -> bool:
        return can_run_together([*(each.needs for each in running), needs], self._machines)

    def _start_of(self, needs: Needs, running: Sequence[_Running], now: float) -> float:
        """The estimated time at which enough of the running trials have ended; one that is late may end at any moment."""
        left = sorted(running, key=lambda each: each.ends)
        while left:
            ended = left.pop(0)
            if self._fits(needs, left):
                return max(now, ended.ends)
        return float("inf")  # it needs more than the machines that are alive
