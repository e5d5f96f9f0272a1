"""Parquet with one interaction per row; the format of every dataset in a mirror."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.core.errors import DataError, first_line, printable
from rankbench.core.registry import nearest
from rankbench.data.cards import Read
from rankbench.data.column_types import UNREADABLE, decoded, require_type
from rankbench.data.columns import interactions
from rankbench.data.raw import RawFile
from rankbench.data.readers import reads
from rankbench.data.wide_text import FEW_ROWS, NO_DICTIONARY, copied, narrow, rows_at_once

MIRROR = Read(format="parquet", user="user", item="item", value="rating", time="timestamp")
BATCH = 1 << 20  # rows in one table


@reads("parquet")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield tables of at most a million rows. Raises DataError for a damaged file, a column that is missing or of an
    unsupported type, or a bad row.
    """
    with raw.open() as file:
        names = _columns(raw, opened(raw, file).schema_arrow)
        done = 0
        for batch in batches(raw, file, list(dict.fromkeys(names.values()))):
            try:
                columns = {name: decoded(batch[column]) for name, column in names.items()}
                table = interactions(columns, partial(row_of, raw, done), raw.keep_missing)
            except UNREADABLE as error:
                raise DataError(f"{raw.path}: {printable(first_line(error))}") from None
            yield table
            done += len(table)


def opened(raw: RawFile, file: IO[bytes], as_dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """The Parquet file in the stream; `as_dictionaries`: columns of text that are read so.

    Raises DataError if it is none, or lies in an archive.
    """
    if not file.seekable():
        raise DataError(f"{raw.path}: Parquet is not read out of an archive; unpack it first")
    try:
        # Pages are read as they are needed: a row group may be the whole file.
        source = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False, read_dictionary=as_dictionaries)
        _ = source.schema_arrow
    except UNREADABLE as error:
        raise DataError(f"{raw.path}: not a Parquet file: {printable(first_line(error))}") from None
    return source


def batches(raw: RawFile, file: IO[bytes], columns: list[str]) -> Iterator[pa.Table]:
    """Yield tables of at most a million rows and 32 MB of text, which may be dictionaries. Raises DataError for damaged pages,
    and for text that is too long.
    """
    most = rows_at_once(raw, opened(raw, file), columns, BATCH)
    done = 0
    for as_dictionaries, n_rows in ((columns, most), ([], min(most, FEW_ROWS))):
        again = done  # rows that are read for the second time
        try:
            for batch in opened(raw, file, as_dictionaries).iter_batches(n_rows, columns=columns):
                if known := min(again, len(batch)):
                    batch = copied(batch, known, len(batch))
                again -= known
                yield from narrow(batch, partial(row_of, raw, done))
                done += len(batch)
            return
        except UNREADABLE as error:
            if not (as_dictionaries and NO_DICTIONARY in str(error)):
                raise DataError(f"{raw.path}: {printable(first_line(error))}") from None


def row_of(raw: RawFile, done: int, row: int) -> str:
    """Names a row of a batch that begins after `done` rows."""
    return f"{raw.path}: row {done + row + 1}"


def _columns(raw: RawFile, schema: pa.Schema) -> dict[str, str]:
    """The columns to read: user, item, value, time → the file's column."""
    names, present = {}, schema.names
    for name, column in raw.spec.columns({"user": "user", "item": "item"}).items():
        # MIRROR names every column that may exist, a card only those that do.
        if raw.spec is MIRROR and name in ("value", "time") and column not in present:
            continue
        if column not in present:
            raise DataError(f"{raw.path}: no column {column!r}{printable(nearest(str(column), present))}")
        if present.count(column) > 1:
            raise DataError(f"{raw.path}: {present.count(column)} columns are called {column!r}")
        require_type(name, schema.field(column).type, str(column), str(raw.path))
        names[name] = str(column)
    return names
