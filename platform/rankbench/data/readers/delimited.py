"""Text with one interaction a line and any separator: CSV, TSV, MovieLens `::`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from threading import Lock
from typing import IO

import pyarrow as pa
import pyarrow.csv as csv

from rankbench.data.columns import checked, numbers, seconds
from rankbench.data.raw import RawFile
from rankbench.errors import DataError, printable
from rankbench.registry import nearest


def read(raw: RawFile) -> Iterator[pa.Table]:
    """One table, for now."""
    with raw.open() as file:
        yield _read(io.BytesIO(file.read()), raw.spec, str(raw.path))


def _read(file: IO[bytes], spec, where: str) -> pa.Table:
    """Columns user, item (string) and, where the card names them, value (float64), time (int64).

    Raises DataError naming a missing column, or the line that is malformed or holds no number where one belongs.
    """
    separator = spec.separator
    if len(separator.encode()) > 1:
        file, separator = _narrow(file, separator, where), "\x1f"
    wanted = {name: getattr(spec, name) for name in ("user", "item", "value", "time")}
    wanted = {name: str(column) for name, column in wanted.items() if column is not None}

    def place(row: int) -> str:
        return f"{where}:{_line_number(file, row + spec.header)}"

    columns = _columns(file, separator, spec.header, where)
    names = {name: f"f{column}" if not spec.header else column for name, column in wanted.items()}
    for column in names.values():
        if column not in columns:
            shown = column if spec.header else column.removeprefix("f")
            hint = nearest(column, columns) or f"; columns: {', '.join(columns)}"
            raise DataError(f"{where}: no column {shown!r}{printable(hint) if spec.header else f'; there are {len(columns)}'}")
        if columns.count(column) > 1:
            raise DataError(f"{where}: {columns.count(column)} columns are called {column!r}")

    def parse(use_threads: bool) -> pa.Table:
        with _Tap(file) as tap:
            return csv.read_csv(
                tap,
                read_options=csv.ReadOptions(
                    block_size=8 << 20, autogenerate_column_names=not spec.header, use_threads=use_threads
                ),
                parse_options=csv.ParseOptions(delimiter=separator),
                # Everything is read as text, so that an id such as 007 or 1e5 keeps its spelling.
                convert_options=csv.ConvertOptions(
                    include_columns=list(dict.fromkeys(names.values())),
                    column_types=dict.fromkeys(columns, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )

    try:
        table = parse(use_threads=True)
    except pa.ArrowInvalid as error:
        problem = error
        # Arrow counts rows, and so can name the bad one, only in a single thread.
        try:
            parse(use_threads=False)
        except pa.ArrowInvalid as counted:
            problem = counted
        raise _malformed(problem, file, where) from None
    result = {name: table[column] for name, column in names.items()}
    for name, convert in (("value", numbers), ("time", seconds)):
        if name in result:
            result[name] = convert(result[name], place)
    return checked(pa.table(result), place)


def _columns(file: IO[bytes], separator: str, header: bool, where: str) -> list[str]:
    """The names in the first line that is not empty, or f0, f1, ... for its columns."""
    first = b""
    while not first.strip(b"\r\n") and (first := file.readline(1 << 20)):
        pass
    options = csv.ReadOptions(autogenerate_column_names=not header)
    try:
        return csv.read_csv(io.BytesIO(first), options, csv.ParseOptions(delimiter=separator)).column_names
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _malformed(error, file, where) from None


class _Tap(io.RawIOBase):
    """The file from its start, for Arrow alone: its threads read ahead, and after an error on, until the tap is closed."""

    def __init__(self, file: IO[bytes]):
        file.seek(0)
        self._file, self._turn = file, Lock()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._turn:
            return b"" if self.closed else self._file.read(size)

    def close(self) -> None:
        with self._turn:
            super().close()


def _narrow(file: IO[bytes], separator: str, where: str) -> IO[bytes]:
    """The same text with a one-byte separator, which the CSV parser needs."""
    content = file.read()
    if b"\x1f" in content:
        raise DataError(f"{where}: holds the control character 0x1f, which stands for the separator {separator!r}")
    return io.BytesIO(content.replace(separator.encode(), b"\x1f"))


def _malformed(error: Exception, file: IO[bytes], where: str) -> DataError:
    """Arrow's words on one line, with its count of rows turned into a line of the file."""
    words = printable(str(error).splitlines()[0].removeprefix("CSV parse error: "))
    if row := re.search(r"Row #(\d+): ", words):
        return DataError(f"{where}:{_line_number(file, int(row[1]) - 1)}: {words.replace(row[0], '')}")
    return DataError(f"{where}: {words}")


def _line_number(file: IO[bytes], row: int) -> int:
    """Where the `row`-th line that is not empty lies (from 0): empty lines are skipped, but an editor counts them."""
    file.seek(0)
    filled = (number for number, line in enumerate(file, start=1) if line.strip(b"\r\n"))
    return next(islice(filled, row, None), row + 1)
