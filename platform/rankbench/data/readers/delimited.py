"""Text with one interaction a line and any separator: CSV, TSV, MovieLens `::`."""

from __future__ import annotations

import io
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from rankbench.data.cards import Read
from rankbench.errors import DataError
from rankbench.registry import nearest


def read(file: IO[bytes], spec: Read, where: str) -> pa.Table:
    """Columns user, item (string) and, where the card names them, value (float64), time (int64).

    Raises DataError naming a missing column, or the row of a malformed line or number.
    """
    separator = spec.separator
    if len(separator) > 1:
        file, separator = _narrow(file, separator, where), "\x1f"
    wanted = {name: getattr(spec, name) for name in ("user", "item", "value", "time")}
    wanted = {name: str(column) for name, column in wanted.items() if column is not None}
    # Everything is read as text, so that an id such as 007 or 1e5 keeps its spelling.
    try:
        with csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=8 << 20, autogenerate_column_names=not spec.header),
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(check_utf8=True, quoted_strings_can_be_null=False),
        ) as probe:
            columns = probe.schema.names
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise DataError(f"{where}: {_one_line(error)}") from None
    file.seek(0)
    names = {name: f"f{column}" if not spec.header else column for name, column in wanted.items()}
    for column in names.values():
        if column not in columns:
            shown = column if spec.header else column.removeprefix("f")
            hint = nearest(column, columns) or f"; columns: {', '.join(columns)}"
            raise DataError(f"{where}: no column {shown!r}{hint if spec.header else f'; there are {len(columns)}'}")
    try:
        table = csv.read_csv(
            file,
            read_options=csv.ReadOptions(block_size=8 << 20, autogenerate_column_names=not spec.header),
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(
                include_columns=list(dict.fromkeys(names.values())),
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: {_one_line(error)}") from None
    result = {name: table[column] for name, column in names.items()}
    for name, kind in (("value", pa.float64()), ("time", pa.int64())):
        if name in result:
            result[name] = _numbers(result[name], kind, f"{where}: {names[name]}", 1 + spec.header)
    return pa.table(result)


def _numbers(column: pa.ChunkedArray, kind: pa.DataType, where: str, first_line: int) -> pa.ChunkedArray:
    try:
        return column.cast(pa.float64()).cast(kind) if pa.types.is_integer(kind) else column.cast(kind)
    except pa.ArrowInvalid:
        good = pc.match_substring_regex(column, r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$")
        row = pc.index(pc.fill_null(good, True), False).as_py()
        found = column[row].as_py() if row >= 0 else "a fraction"
        raise DataError(f"{where}: line {row + first_line}: expected a number, found {found!r}") from None


def _narrow(file: IO[bytes], separator: str, where: str) -> IO[bytes]:
    """The same text with a one-byte separator, which the CSV parser needs."""
    content = file.read()
    if b"\x1f" in content:
        raise DataError(f"{where}: holds the control character 0x1f, which stands for the separator {separator!r}")
    return io.BytesIO(content.replace(separator.encode(), b"\x1f"))


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("CSV parse error: ")
