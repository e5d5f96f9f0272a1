"""Which waiting trial starts next, so that trials with unequal needs run side by side.

The trial at the head of the queue starts as soon as the machines can run it. While it waits for others to end, a later one may
start if it fits beside the running ones and, by the estimates, does not delay the head: "EASY" backfilling, as batch systems do
it (Lifka, 1995). Without this rule, small trials would keep a wide one from ever starting; without backfilling, processors
would idle in front of each wide one.
"""

from __future__ import annotations

import math
from collections import Counter
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
        self._able: dict[Needs, bool] = {}  # whether the machines can run a trial with such needs alone
        self._stuck: list[Request] = []  # the queue in which nothing can start before `_stuck_until`; empty after a change
        self._stuck_until = math.inf
        self.unable: Needs | None = None  # of a trial in the queue that the machines cannot run

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self._machines

    @machines.setter
    def machines(self, machines: Sequence[Machine]) -> None:
        if self._machines != tuple(machines):
            self._machines, self._stuck, self._able, self.unable = tuple(machines), [], {}, None

    def start(self, name: str, trial: Request, now: float) -> None:
        self._running[name] = _Running(trial.needs, now + trial.seconds)
        self._stuck = []

    def end(self, name: str) -> None:
        self._running.pop(name, None)
        self._stuck = []

    def choose(self, queue: Sequence[Request], now: float) -> int | None:
        """Return the position in the queue of the trial that starts now; None if all wait."""
        if not queue or (self.limit is not None and len(self._running) >= self.limit):
            return None
        # Tune asks ten times per second. Only if a trial starts, ends or becomes late, or machines change, is the answer new.
        if now < self._stuck_until and [*queue] == self._stuck:
            return None
        # What no living machines can run waits for others, and holds nothing back.
        self.unable = next((trial.needs for trial in queue if not self._can_run(trial.needs)), None)
        running = [each for each in self._running.values() if self._can_run(each.needs)]
        first = next((position for position, trial in enumerate(queue) if self._can_run(trial.needs)), None)
        if first is None:  # without a running trial nothing would change by itself: then Ray waits for a machine, and says so
            return None if self._running else 0
        head = queue[first].needs
        if not running or self._fits(head, _numbers(running)):
            return first
        by_then = self._start_of(head, running, now)
        # There may be thousands of trials, but few different needs, and placing each of these once is enough.
        latest = {head: -math.inf}
        for position, trial in enumerate(queue):
            if trial.needs not in latest:
                latest[trial.needs] = self._latest_end(trial.needs, head, by_then, running, now)
            if now + trial.seconds <= latest[trial.needs]:
                return position
        self._stuck = [*queue]
        self._stuck_until = min((each.ends for each in running if each.ends > now), default=math.inf)
        return None

    def _latest_end(self, needs: Needs, head: Needs, by_then: float, running: Sequence[_Running], now: float) -> float:
        """When a trial that starts now has to end so that it does not delay the head: `by_then`, or at any time (inf) on
        processors that the head leaves free; -inf if it does not fit beside the running ones.
        """
        if not self._fits(needs, _numbers(running)):
            return -math.inf
        beside = [*running, _Running(needs, math.inf)]
        return math.inf if self._start_of(head, beside, now, until=by_then) <= by_then else by_then

    def _can_run(self, needs: Needs) -> bool:
        if needs not in self._able:
            self._able[needs] = self._fits(needs, Counter())
        return self._able[needs]

    def _fits(self, needs: Needs, running: Counter[Needs]) -> bool:
        return can_run_together(running + Counter([needs]), self._machines)

    def _start_of(self, needs: Needs, running: Sequence[_Running], now: float, until: float = math.inf) -> float:
        """The estimated time at which enough of the running trials have ended; one that is late may end at any moment.

        inf if it is after `until`.
        """
        left = _numbers(running)
        for ended in sorted(running, key=lambda each: each.ends):
            if ended.ends > until:
                break
            left[ended.needs] -= 1
            if self._fits(needs, left):
                return max(now, ended.ends)
        return math.inf  # without `until`: it needs more than the machines that are alive


def _numbers(running: Sequence[_Running]) -> Counter[Needs]:
    return Counter(each.needs for each in running)
