"""Progress of `rankbench reproduce`: a live display on a terminal, otherwise lines from time to time."""

from __future__ import annotations

import time

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rankbench.sweeps.running import Running
from rankbench.views.phases import clock, err
from rankbench.views.running_lines import running_lines

LINES_EVERY = 120.0  # seconds


class ReproduceView:
    """Displays what has been told, the time spent of `budget` seconds, and how far the fits of `running` are."""

    def __init__(self, budget: float | None, quiet: bool = False):
        self.budget, self.quiet = budget, quiet
        self.running = Running(on_change=self._changed)
        self._began = self._printed_at = time.monotonic()
        self._live = Live(console=err, get_renderable=self._shown, refresh_per_second=2, transient=True)

    def __enter__(self) -> ReproduceView:
        self._began = self._printed_at = time.monotonic()
        if err.is_terminal and not self.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def told(self, line: str) -> None:
        if not self.quiet:
            err.print(line)

    def _changed(self) -> None:
        if self.quiet or err.is_terminal or time.monotonic() - self._printed_at < LINES_EVERY:
            return
        self._printed_at = time.monotonic()
        for line in [self._summary(), *(f"  {line}" for line in running_lines(self.running))]:
            err.print(line)

    def _summary(self) -> str:
        spent = time.monotonic() - self._began
        of_budget = f" of {clock(self.budget)}" if self.budget else ""
        counted = f"{self.running.ended} of {self.running.of} fits, " if self.running.of else ""
        return f"{counted}{clock(spent)}{of_budget} spent"

    def _shown(self) -> Group:
        table = Table.grid(padding=(0, 2))
        if self.budget:
            table.add_row(ProgressBar(self.budget, min(time.monotonic() - self._began, self.budget), width=40), self._summary())
        else:
            table.add_row(self._summary())
        return Group(table, *(Text(f"  {line}") for line in running_lines(self.running)))
