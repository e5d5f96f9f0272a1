"""What a person sees: progress and messages on stderr, results on stdout, JSON for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def program() -> str:
    """How the user started this program, so that what we tell them to type next works."""
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m rankbench"
    return "rankbench" if shutil.which("rankbench") else os.path.relpath(sys.argv[0])


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(header: list[str], body: list[list[str]]) -> None:
    """An aligned table; columns of numbers on the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(header):
        numeric = all(_is_number(line[position]) for line in body if line[position])
        table.add_column(name, justify="right" if numeric and body else "left", overflow="fold", no_wrap=numeric)
    for line in body:
        table.add_row(*line)
    Console(highlight=False, width=None if out.is_terminal else 1000).print(table)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").split(" ")[0])
        return True
    except ValueError:
        return False


@contextmanager
def phase_progress() -> Iterator[Any]:
    """Yields progress(phase, done, total): one live line a phase, with rate and remaining time, on a terminal only."""
    with _bar() as bar:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int | None) -> None:
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
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


class UnitProgress:
    """Fits done of a sweep's stage: a live bar on a terminal, a line a fit elsewhere. Remaining time goes by cost."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[fits]}"), TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True), console=err, disable=quiet or not err.is_terminal,
        )  # fmt: skip
        self.task = None
        self.total = self.fits = 0

    def __enter__(self) -> UnitProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def stage(self, name: str, units: list) -> None:
        self.total, self.fits, self.name = len(units), 0, name
        self.task = self.bar.add_task(name, total=sum(unit.cost for unit in units) or 1, fits=f"0/{self.total} fits")

    def done(self, unit: Any, records: list) -> None:
        self.fits += 1
        self.bar.update(self.task, advance=unit.cost, fits=f"{self.fits}/{self.total} fits")
        failed = [record for record in records if not record.finished]
        if failed and not self.quiet:
            err.print(f"{failed[0].arm or failed[0].method} failed: {failed[0].error}", markup=False)
        if not err.is_terminal and not self.quiet:
            seconds = sum(records[0].seconds.values()) if records else 0
            err.print(
                f"{self.name} {self.fits}/{self.total} {unit.title} settings={len(records)} seconds={seconds:.1f}",
                markup=False,
            )
