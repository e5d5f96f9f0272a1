"""Output of the commands: progress and messages on stderr, results on stdout, JSON with --json."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankbench.sweeps.views.phases import SIGNALS, clock, err, phase_progress
from rankbench.sweeps.views.plain_console import PlainConsole, as_cell

__all__ = ["SIGNALS", "Json", "clock", "epilog", "err", "out", "phase_progress", "print_json", "print_table", "program"]

Json = Annotated[bool, typer.Option("--json", help="Print the result on stdout as JSON.")]


out = PlainConsole(soft_wrap=True)

PIPED_WIDTH = 1000  # columns of output that no terminal shows
LONG_WORD = 24  # characters; a longer word may be broken at the edge of a column
_CLOCK = re.compile(r"\d+(:\d\d)+")


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


def print_table(header: Sequence[str], body: Sequence[Sequence[str | Text]], drop: Sequence[str] = ()) -> None:
    """Print an aligned table, with columns of numbers on the right. Brackets in text are not read as markup.

    On a terminal, a table that is too wide shows intervals below their values, then loses the columns named in `drop`, in this
    order, and breaks its text between words. If its numbers alone are too wide, each row is printed as lines of name and value.
    No number is ever cut or broken. Piped output always has all columns.
    """
    lines = [[as_cell(each) for each in line] for line in body]
    width = out.width if out.is_terminal else PIPED_WIDTH
    columns = [_Column(name, [line[position] for line in lines], position == 0) for position, name in enumerate(header)]
    if _total(column.widest for column in columns) > width:
        columns = [column.stacked() for column in columns]
    console, candidates = Console(highlight=False, width=width), [name for name in drop if name in header]
    for count in range(len(candidates) + 1):
        dropped = candidates[:count]
        shown = [column for column in columns if column.name not in dropped]
        if _total(column.narrowest for column in shown) <= width:
            break
    else:
        _print_folded(console, columns)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, own_width in zip(shown, _widths(shown, width), strict=True):
        justify: Literal["left", "right"] = "right" if column.numeric and lines else "left"
        table.add_column(column.name, justify=justify, overflow="fold", width=own_width)
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    console.print(table)
    if dropped:
        out.print(f"not shown in {width} columns: {', '.join(dropped)}", style="dim")


class _Column:
    """A column with its cells, the width that it needs at least, and the width with which nothing is broken."""

    def __init__(self, name: str, cells: Sequence[Text], first: bool = False):
        self.name, self.cells, self.first = name, cells, first
        numbers = [_is_number(cell.plain) for cell in cells if cell]
        self.numeric = 2 * sum(numbers) >= len(numbers)  # others may say in words why there is no number
        rows = [row for cell in cells for row in cell.plain.split("\n")]
        self.widest = max(map(cell_len, (name, *rows)), default=0)
        # The name may be broken between words, and text also within a long word, such as a path. A number is not broken from
        # its interval or mark, and neither are the words of the first column, which name the rows.
        words = name.split()
        for row in rows:
            words += [row] if self.numeric and _is_number(row.removeprefix("[")) else row.split()
        kept = (word for word in words if first or cell_len(word) <= LONG_WORD or _is_number(word.removeprefix("[")))
        self.narrowest = max([1, *map(cell_len, kept)])

    def stacked(self) -> _Column:
        """The same column with each interval below its value."""
        if not self.numeric:
            return self
        return _Column(self.name, [_below(cell) for cell in self.cells], self.first)


def _below(cell: Text) -> Text:
    position = cell.plain.find(" [")
    return cell if position < 0 else Text("\n").join([cell[:position], cell[position + 1 :]])


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Widths of the columns of a table that may be `width` wide; those that need little get it, the others equal shares."""
    widths = [column.narrowest for column in columns]
    left = width - _total(widths)
    by_need = sorted(range(len(columns)), key=lambda position: columns[position].widest - widths[position])
    for count, position in enumerate(by_need):
        more = min(columns[position].widest - widths[position], left // (len(columns) - count))
        widths[position] += more
        left -= more
    return widths


def _total(widths: Iterable[int]) -> int:
    """Width of a table with these columns, which are two spaces apart."""
    each = [*widths]
    return sum(each) + 2 * (len(each) - 1)


def _print_folded(console: Console, columns: Sequence[_Column]) -> None:
    """Print each row as its names, and below them one line for every other cell that is not empty."""
    n_names = 2 if len(columns) > 2 and not columns[1].numeric else 1
    names, rest = columns[:n_names], columns[n_names:]
    indent = max((cell_len(column.name) for column in rest), default=0)
    for row in range(len(names[0].cells)):
        console.print(Text("  ".join(column.cells[row].plain for column in names), "bold"), soft_wrap=True)
        for column in rest:
            if value := column.cells[row]:
                name = Text(f"  {column.name.ljust(indent)}  ", style="dim")
                console.print(name + Text(" ").join(value.split("\n")), soft_wrap=True)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("]").split(" ")[0])
        return True
    except ValueError:
        return bool(_CLOCK.fullmatch(text))
