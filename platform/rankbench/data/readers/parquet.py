"""Parquet with one interaction a row; the form of every dataset in a mirror."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.data.cards import Read
from rankbench.data.columns import checked, ids, numbers, seconds
from rankbench.data.raw import RawFile
from rankbench.errors import DataError, printable
from rankbench.registry import nearest

MIRROR = Read(format="parquet", user="user", item="item", value="rating", time="timestamp")
BATCH = 1 << 20  # rows in one table


def read(raw: RawFile) -> Iterator[pa.Table]:
    """Tables of a million rows. Raises DataError for a damaged file, a missing column, or a bad row."""
    with raw.open() as file:
        try:
            source = pq.ParquetFile(file)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{raw.path}: not a Parquet file: {_first_line(error)}") from None
        names = _columns(raw, source.schema_arrow.names)
        done = 0
        batches = source.iter_batches(BATCH, columns=list(dict.fromkeys(names.values())))
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                table = _converted(pa.table(batch), names, lambda row, done=done: f"{raw.path}: row {done + row + 1}")
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{raw.path}: {_first_line(error)}") from None
            yield table
            done += len(table)


def _columns(raw: RawFile, present: list[str]) -> dict[str, str]:
    """What to read: user, item, value, time → the file's column."""
    names = {}
    for name in ("user", "item", "value", "time"):
        column = getattr(raw.spec, name)
        # The mirror's reading asks for every column it may have; a card's asks for what the card names.
        if column is None or (raw.spec is MIRROR and name in ("value", "time") and column not in present):
            continue
        if column not in present:
            raise DataError(f"{raw.path}: no column {column!r}{printable(nearest(str(column), present))}")
        if present.count(column) > 1:
            raise DataError(f"{raw.path}: {present.count(column)} columns are called {column!r}")
        names[name] = str(column)
    return names


def _converted(table: pa.Table, names: dict[str, str], place) -> pa.Table:
    result = {name: table[column] for name, column in names.items()}
    for name in ("user", "item"):
        result[name] = ids(result[name])
    if "value" in result:
        result["value"] = numbers(result["value"], place)
    if "time" in result:
        result["time"] = seconds(result["time"], place)
    return checked(pa.table(result), place)


def _first_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0])
