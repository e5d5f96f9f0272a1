"""A live display of running work on a terminal, and lines from time to time where there is none."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rankbench.sweeps.running import Running, RunningFit
from rankbench.sweeps.views.phases import clock, err

SHOWN = 6  # fits that are shown; a cluster runs hundreds


class LiveView(ABC):
    """Displays how far the fits of `running` are, under a summary of the whole work; nothing if `quiet`. Without a terminal,
    it prints the same at most every `every` seconds.
    """

    every: float
    running: Running | None = None

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self._printed_at = time.monotonic()
        self._live = Live(console=err, get_renderable=self._shown, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if err.is_terminal and not self.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @abstractmethod
    def summary(self) -> str:
        """A line on the whole work."""

    @abstractmethod
    def share(self) -> tuple[float, float] | None:
        """What is done, and of how much, for a bar; None if nobody knows."""

    def best(self) -> list[tuple[str, str]]:
        """Names and values that are shown under the summary."""
        return []

    def changed(self) -> None:
        """Print where the work is, at most once in a while."""
        if self.running is None or self.quiet or err.is_terminal or time.monotonic() - self._printed_at <= self.every:
            return
        self._printed_at = time.monotonic()
        for line in [self.summary(), *(f"  {line}" for line in running_lines(self.running))]:
            err.print(line)

    def _shown(self) -> Group:
        table = Table.grid(padding=(0, 2))
        if self.running is None:
            return Group(table)
        share = self.share()
        table.add_row(*([ProgressBar(share[1], share[0], width=40)] if share else []), self.summary())
        for line in self.best():
            table.add_row(*line)
        return Group(table, *(Text(f"  {line}") for line in running_lines(self.running)))


class ReproduceView(LiveView):
    """Displays the time spent of `budget` seconds, and how far the fits of `running` are; prints what it is told."""

    every = 120.0

    def __init__(self, budget: float | None, quiet: bool = False):
        super().__init__(quiet)
        self.budget, self._began = budget, time.monotonic()
        self.running: Running = Running(on_change=self.changed)

    def __enter__(self) -> Self:
        self._began = self._printed_at = time.monotonic()
        return super().__enter__()

    def told(self, line: str) -> None:
        if not self.quiet:
            err.print(line)

    def share(self) -> tuple[float, float] | None:
        return (min(time.monotonic() - self._began, self.budget), self.budget) if self.budget else None

    def summary(self) -> str:
        of_budget = f" of {clock(self.budget)}" if self.budget else ""
        counted = f"{self.running.ended} of {self.running.of} fits, " if self.running.of else ""
        return f"{counted}{clock(time.monotonic() - self._began)}{of_budget} spent"


def running_lines(running: Running) -> list[str]:
    """A line for each running fit, the oldest first; of many, the number of those that are left out."""
    fits = running.fits
    more = [f"and {len(fits) - SHOWN} more fits"] if len(fits) > SHOWN else []
    return [_line(fit) for fit in fits[:SHOWN]] + more


def _line(fit: RunningFit) -> str:
    if fit.of is None or not fit.done:
        parts = [f"running for {clock(time.monotonic() - fit.started)}"]
    else:
        parts = [f"{fit.done} of {fit.of} {fit.counted}"]
    if fit.valid is not None:
        parts.append(f"{fit.metric} {fit.valid:.4f} on valid")
    if (silence := fit.silence) is not None:
        parts.append(f"no report for {clock(silence)}")
    elif fit.remaining is not None:
        # Early stopping may end it before.
        parts.append(f"{'at most ' if fit.metric else ''}{clock(fit.remaining)} left")
    return f"{fit.title}: {', '.join(parts)}"
