"""Output of the commands: progress and messages on stderr, results on stdout, JSON with --json."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankbench.views.phases import SIGNALS, err, phase_progress

__all__ = ["SIGNALS", "Json", "epilog", "err", "out", "phase_progress", "print_json", "print_table", "program"]

Json = Annotated[bool, typer.Option("--json", help="Print the result on stdout as JSON.")]

# Names of datasets, arms and files may contain brackets, so nothing that is printed is read as markup.
out = Console(soft_wrap=True, highlight=False, markup=False)


def program() -> str:
    """The command that started this program, for messages that suggest what to type next."""
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m rankbench"
    return "rankbench" if shutil.which("rankbench") else os.path.relpath(sys.argv[0])


def epilog(examples: str) -> str:
    """Return the end of a help text with one paragraph per line, because the lines of a paragraph are joined."""
    return examples.replace("\n", "\n\n")


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(header: Sequence[str], body: Sequence[Sequence[str | Text]]) -> None:
    """Print an aligned table, with columns of numbers on the right. Brackets in text are not read as markup."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(header):
        numeric = all(_is_number(str(line[position])) for line in body if line[position])
        table.add_column(name, justify="right" if numeric and body else "left", overflow="fold", no_wrap=numeric)
    for line in body:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    Console(highlight=False, width=None if out.is_terminal else 1000).print(table)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").split(" ")[0])
        return True
    except ValueError:
        return False
