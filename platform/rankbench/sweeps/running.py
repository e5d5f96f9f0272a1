"""How far the running fits are, as their trials report it from time to time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from rankbench.fitting.drive import Row
from rankbench.fitting.method import Iterative
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import RunRecord

# Gets what is known of the record of a fit that runs, and returns what takes new rows of its curve.
Follow = Callable[[Unit, RunRecord], Callable[[Sequence[Row]], None]]
# A fit is silent if it has not reported for so many seconds, and for so many times the longest time between two reports before.
SILENT, TIMES = 600.0, 10


@dataclass
class RunningFit:
    """A fit after `done` of at most `of` iterations, called `iterations` or `epochs`; `of` is None for a fit without any.

    `valid`: the last value of `metric` on the validation set. Times are those of `time.monotonic`.
    """

    title: str
    of: int | None = None
    counted: str = "iterations"
    metric: str = ""
    done: int = 0
    valid: float | None = None
    started: float = field(default_factory=lambda: time.monotonic())
    first: tuple[float, int] | None = None  # time and iteration of the first report: a resumed fit begins late
    last: tuple[float, int] | None = None
    longest: float = 0.0  # seconds without a report so far, the start included
    place: str = ""  # host and process, of the last report
    held: bool = False  # whether it waits for an earlier trial, with which it is compared

    @classmethod
    def of_unit(cls, unit: Unit) -> RunningFit:
        first, (dataset, arm) = unit.job.configs[0], unit.arm
        more = f" and {n} more" if (n := len(unit.job.configs) - 1) else ""
        title = f"{arm}{more} on {dataset}, seed {unit.job.seed}"
        if not isinstance(first.spec, Iterative):
            return cls(title)
        stopping = first.stopping
        return cls(title, first.flat[first.spec.length], first.spec.length, stopping.stop_metric if stopping else "")

    def report(self, iteration: int, valid: float | None, place: str = "") -> None:
        """Take the number of iterations that are done, the value on the validation set, if it is new, and the place."""
        now = time.monotonic()
        self.longest = max(self.longest, now - (self.last[0] if self.last else self.started))
        self.done, self.last, self.place = iteration, (now, iteration), place
        self.first = self.first or self.last
        self.valid = self.valid if valid is None else valid

    @property
    def remaining(self) -> float | None:
        """Seconds for the iterations that are left, by the rate between the first report and the last; the fit may end earlier.
        None before there is a rate.
        """
        if self.of is None or self.first is None or self.last is None or self.last[1] <= self.first[1]:
            return None
        (began, first), (now, last) = self.first, self.last
        return (self.of - last) * (now - began) / (last - first)

    @property
    def silence(self) -> float | None:
        """Seconds since the last report, if a fit that goes on would have reported; None otherwise, and where nobody can know:
        before the first report, while it is held, and while the finished model is measured.
        """
        if self.last is None or self.done == self.of or self.held:
            return None
        seconds = time.monotonic() - self.last[0]
        return seconds if seconds > max(SILENT, TIMES * self.longest) else None


class OutOfTime(KeyboardInterrupt):
    """The deadline of `Running` has passed: fits are ended as by Ctrl-C, and keep their checkpoints."""


class Running:
    """The fits of one call of `run_units` that run now, and the number of those that have ended, `ended` of `of`.

    `on_change` is called when a fit starts, reports and ends, and also in between; `follow` at the first report of a fit. After
    the `deadline` (time.monotonic), if there is one, the call ends with OutOfTime unless all fits have ended.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None):
        self.on_change = on_change
        self.follow: Follow = lambda unit, record: lambda rows: None
        self.deadline: float | None = None
        self.over = False  # whether the deadline has ended a call
        self.of = self.ended = 0
        self._fits: dict[str, RunningFit] = {}
        self._take: dict[str, Callable[[Sequence[Row]], None]] = {}

    @property
    def fits(self) -> list[RunningFit]:
        """The running fits, the oldest first; a copy, for other threads."""
        return [*self._fits.values()]

    def expect(self, of: int) -> None:
        """Begin a call with `of` fits."""
        self.of, self.ended = of, 0
        self._fits.clear()

    @property
    def seconds_left(self) -> float:
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def require_time(self) -> None:
        """Raise OutOfTime after the deadline."""
        if self.seconds_left <= 0:
            raise OutOfTime

    def step(self) -> None:
        """Called several times a second by the loop that waits for the fits."""
        self.on_change()  # a closed form reports nothing, and a log should still say that it runs
        if self.ended < self.of:
            self.require_time()

    def start(self, trial: str, unit: Unit) -> None:
        self._fits[trial] = RunningFit.of_unit(unit)
        self.on_change()

    def report(self, trial: str, iteration: int, valid: float | None, place: str = "") -> None:
        if trial in self._fits:
            self._fits[trial].report(iteration, valid, place)
            self.on_change()

    def hold(self, held: Container[str]) -> None:
        """Say which trials wait for others."""
        for trial, fit in self._fits.items():
            if fit.held and trial not in held:  # what it waited is no silence of its own
                fit.last = fit.last and (time.monotonic(), fit.last[1])
            fit.held = trial in held

    def begin(self, trial: str, unit: Unit, record: RunRecord) -> None:
        """Take what is known of the record of a fit before its end."""
        self._take[trial] = self.follow(unit, record)

    def add(self, trial: str, rows: Sequence[Row]) -> None:
        """Pass new rows of a curve on."""
        if take := self._take.get(trial):
            take(rows)

    def leave(self, trial: str) -> None:
        """Remove a fit that does not run any more."""
        self._fits.pop(trial, None)
        self._take.pop(trial, None)

    def end(self) -> None:
        """Count a fit that has ended, or was not needed."""
        self.ended += 1
        self.on_change()
