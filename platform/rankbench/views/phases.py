"""Progress of a fit on a terminal: one line per phase, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SIGNALS: list[int] = []  # SIGINT and SIGTERM received by the command line

# Names of datasets and arms may contain brackets, so nothing that is printed is read as markup.
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def phase_progress() -> Iterator[Any]:
    """Yield progress(phase, done, total), which shows one line per phase with the remaining time, on a terminal only."""
    bar = _bar()
    with bar if err.is_terminal else nullcontext():  # once started, older versions of Rich end even a disabled bar with a line
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int | None) -> None:
            # An exception raised while C calls back into Python is lost, including an interrupt.
            if SIGNALS:
                raise KeyboardInterrupt
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)

        yield progress


def _bar() -> Progress:
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, console=err, transient=True)
