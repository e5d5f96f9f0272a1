"""Progress of a running sweep."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rankbench.experiment.fit_warnings import fit_warnings
from rankbench.sweeps.views.live import LiveView
from rankbench.sweeps.views.phases import clock, err

if TYPE_CHECKING:
    from rankbench.schema.stored_sweep import NotAvailable
    from rankbench.sweeps.heartbeat import Progress
    from rankbench.sweeps.plan import Plan
    from rankbench.sweeps.units import Unit
    from rankbench.tracking.record import RunRecord


class SweepView(LiveView):
    """Displays a `sweeps.heartbeat.Progress`; `metric` is the one that settings are chosen by.

    `on_accept` is called with the plan before the sweep starts, and with the folder that is resumed, if any; it may ask.
    """

    every = 60.0
    progress: Progress

    def __init__(
        self, metric: str, quiet: bool = False, on_accept: Callable[[Plan, Path | None], None] = lambda plan, folder: None
    ):
        super().__init__(quiet)
        self.metric, self.on_accept = metric, on_accept

    def say(self, line: str) -> None:
        """Show a line that stays."""
        err.print(line)

    def accept(self, plan: Plan, begun: Path | None) -> None:
        for line in left_out(plan.not_available):
            self.warn(f"{line}; a resumed sweep adds it once it is available")
        for note in plan.notes:
            if not self.quiet or note.startswith("warning:"):
                self.say(f"  {note}" if not self.quiet else note)
        if self.quiet:
            return
        shown = self._live.is_started
        self._live.stop()
        self.on_accept(plan, begun)
        if shown:
            self._live.start()

    def planned(self, plan: Plan, folder: Path) -> None:
        if not self.quiet:
            searched = f"{plan.n_settings} settings in {plan.n_fits} fits" if plan.given is None else "nothing to search"
            here = Path.cwd()
            self.say(f"{plan.spec.name}: {searched} → {folder.relative_to(here) if folder.is_relative_to(here) else folder}")

    def warn(self, line: str) -> None:
        self.say(f"warning: {line}")

    def stage(self, progress: Progress) -> None:
        self.progress, self.running, self._printed_at = progress, progress.running, time.monotonic()
        progress.running.on_change = self.changed

    def done(self, unit: Unit, records: list[RunRecord]) -> None:
        for line in final_warnings(records):
            self.warn(line)
        if self.quiet:
            return
        for record in (each for each in records if each.failed):
            self.say(f"failed: {record.error} ({record.label} on {record.dataset.name})")
        if not err.is_terminal and self.progress.done == self.progress.of:
            self.say(self.summary())

    def changed(self) -> None:
        if self.progress.done < self.progress.of:
            super().changed()

    def share(self) -> tuple[float, float]:
        return self.progress.cost, self.progress.cost_of or 1

    def summary(self) -> str:
        return summary(self.progress)

    def best(self) -> list[tuple[str, str]]:
        return [(f"  {label}", f"best {self.metric} on valid {value:.4f}") for label, value in self.progress.best.items()]


def final_warnings(records: Iterable[RunRecord]) -> Iterator[str]:
    """What a user should know of the final fits among records."""
    for record in (each for each in records if each.stage == "final" and not each.failed):
        for problem in fit_warnings(record.method, record.params, record.curve, record.iterations, record.dtype):
            yield f"{problem} ({record.label} on {record.dataset.name})"


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
