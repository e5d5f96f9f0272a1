"""Progress of a fit on a terminal: one line per phase, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rankbench.sweeps.views.plain_console import PlainConsole

LINE_EVERY = 30.0  # seconds between two lines of progress where no terminal shows a bar
SIGNALS: list[int] = []  # SIGINT and SIGTERM received by the command line

err = PlainConsole(stderr=True, soft_wrap=True)


@contextmanager
def phase_progress() -> Iterator[Any]:
    """Yield progress(phase, done, total), which shows one line per phase with the remaining time on a terminal. In the log of a
    batch job it prints a line at most every `LINE_EVERY` seconds.
    """
    bar = _bar()
    with bar if err.is_terminal else nullcontext():  # once started, older versions of Rich end even a disabled bar with a line
        tasks: dict[str, Any] = {}
        began = printed_at = time.monotonic()

        def progress(phase: str, done: int, total: int | None) -> None:
            # An exception raised while C calls back into Python is lost, including an interrupt.
            if SIGNALS:
                raise KeyboardInterrupt
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)
            nonlocal printed_at
            if not err.is_terminal and (now := time.monotonic()) - printed_at >= LINE_EVERY:
                printed_at = now
                err.print(f"{phase} {f'{done / total:.0%}' if total else f'{done:,}'} after {clock(now - began)}")

        yield progress


def clock(seconds: float) -> str:
    """Seconds as minutes:seconds, or hours:minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _bar() -> Progress:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    return Progress(*columns, console=err, transient=True)
