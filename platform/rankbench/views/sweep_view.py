"""Progress of a running sweep: a live display on a terminal, otherwise one line per minute."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rankbench.experiment.divergence import divergence
from rankbench.views.phases import clock, err
from rankbench.views.running_lines import running_lines

if TYPE_CHECKING:
    from rankbench.schema.stored_sweep import NotAvailable
    from rankbench.sweeps.heartbeat import Progress
    from rankbench.sweeps.plan import Plan
    from rankbench.sweeps.units import Unit
    from rankbench.tracking.record import RunRecord

LINE_EVERY = 60.0  # seconds


class SweepView:
    """Displays a `sweeps.heartbeat.Progress`; `metric` is the one that settings are chosen by.

    `on_accept` is called with the plan before the sweep starts, and with the folder that is resumed, if any; it may ask.
    """

    def __init__(
        self, metric: str, quiet: bool = False, on_accept: Callable[[Plan, Path | None], None] = lambda plan, folder: None
    ):
        self.metric, self.quiet, self.on_accept = metric, quiet, on_accept
        self.progress: Progress | None = None
        self._printed_at = 0.0
        self._live = Live(console=err, get_renderable=self._shown, refresh_per_second=2, transient=True)

    def __enter__(self) -> SweepView:
        if err.is_terminal and not self.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def accept(self, plan: Plan, begun: Path | None) -> None:
        for line in left_out(plan.not_available):
            self.warn(f"{line}; --resume adds it once it is available")
        if self.quiet:
            return
        for note in plan.notes:
            err.print(f"  {note}")
        shown = self._live.is_started
        self._live.stop()
        self.on_accept(plan, begun)
        if shown:
            self._live.start()

    def planned(self, plan: Plan, folder: Path) -> None:
        if not self.quiet:
            searched = f"{plan.n_settings} settings in {plan.n_fits} fits" if plan.given is None else "nothing to search"
            err.print(f"{plan.spec.name}: {searched} → {folder}")

    def warn(self, line: str) -> None:
        err.print(f"warning: {line}")

    def stage(self, progress: Progress) -> None:
        self.progress, self._printed_at = progress, time.monotonic()
        progress.running.on_change = self._changed

    def done(self, unit: Unit, records: list[RunRecord]) -> None:
        if self.quiet or self.progress is None:
            return
        for record in records:
            name = f"{record.arm or record.method} on {record.dataset.name}"
            if record.failed:
                err.print(f"failed: {record.error} ({name})")
            elif record.stage == "final" and (problem := divergence(record.curve, record.params)):
                err.print(f"warning: {problem} ({name})")
        if not err.is_terminal and self.progress.done == self.progress.of:
            err.print(summary(self.progress))

    def _changed(self) -> None:
        """Print where the sweep is, at most once in a while."""
        progress = self.progress
        if self.quiet or err.is_terminal or progress is None or progress.done == progress.of:
            return
        if time.monotonic() - self._printed_at > LINE_EVERY:
            self._printed_at = time.monotonic()
            for line in [summary(progress), *(f"  {line}" for line in running_lines(progress.running))]:
                err.print(line)

    def _shown(self) -> Group:
        table = Table.grid(padding=(0, 2))
        if self.progress is None:
            return Group(table)
        table.add_row(ProgressBar(self.progress.cost_of or 1, self.progress.cost, width=40), summary(self.progress))
        for label, value in self.progress.best.items():
            table.add_row(f"  {label}", f"best {self.metric} {value:.4f}")
        return Group(table, *(Text(f"  {line}") for line in running_lines(self.progress.running)))


def left_out(not_available: dict[str, NotAvailable], shown_in_full: int = 3) -> list[str]:
    """Sentences on datasets that are not available: the reason of each, or, if there are many, their names by reason."""
    if len(not_available) <= shown_in_full:
        return [f"not available: {problem.reason}" for problem in not_available.values()]
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, problem in not_available.items():
        by_reason[problem.brief].append(name)
    return [f"not available ({brief}): {', '.join(names)}" for brief, names in by_reason.items()]


def summary(progress: Progress) -> str:
    """One line: finished, stopped and failed fits, their rate, and the remaining time."""
    parts = [f"{progress.stage} {progress.done}/{progress.of} {progress.counted}"]
    counts = ("reused", progress.reused), ("stopped", progress.stopped), ("failed", progress.failed)
    parts += [f"{n} {state}" for state, n in counts if n]
    elapsed = time.monotonic() - progress.started
    if (ran := progress.done - progress.reused) and elapsed > 1:
        parts.append(f"{60 * ran / elapsed:.1f} per minute")
    left = progress.remaining(time.monotonic())
    if left is not None and progress.done < progress.of:
        parts.append(f"{clock(left)} left")
    return ", ".join(parts)
