"""Parquet with one interaction per row; the format of every dataset in a mirror.

Text is read in bounded memory: a few bytes of a file may be a long text that a million rows repeat. Its columns are read as
dictionaries, which have each text once, and cut into tables of bounded size before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankbench.core.errors import DataError, first_line, printable
from rankbench.core.registry import nearest
from rankbench.data.cards import Read
from rankbench.data.columns import LONGEST_TEXT, UNREADABLE, Locate, decoded, interactions, is_text, require_type, too_long
from rankbench.data.raw import RawFile, bomb
from rankbench.data.readers import reads

MIRROR = Read(format="parquet", user="user", item="item", value="rating", time="timestamp")
BATCH = 1 << 20  # rows in one table
AT_ONCE = 32 << 20  # bytes of text in one table
# Text that is stored by its difference to the row before cannot be read as a dictionary, as pyarrow says in these words.
NO_DICTIONARY = "Not yet implemented: DecodeArrow of DictAccumulator"
FEW_ROWS = 1024  # are read at once of such text: how long it is is not known before


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


def rows_at_once(raw: RawFile, file: pq.ParquetFile, columns: list[str], most: int) -> int:
    """How many rows to read at once, `most` at most, if columns are text: by the size of the file before it was compressed.

    Raises DataError if that is far larger than the file.
    """
    if not any(field.name in columns and is_text(field.type) for field in file.schema_arrow):
        return most
    # What is known of single columns is not asked for: if it is damaged, pyarrow ends the process.
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > raw.limit():
        raise bomb(raw.path, raw.limit(), "write it without compression")
    return _rows(max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=0), most)


def narrow(batch: pa.RecordBatch, locate: Locate) -> Iterator[pa.Table]:
    """Cut a batch into tables of at most 32 MB of text, once it is decoded. Raises DataError for a text that is too long, and
    pa.ArrowIndexError for one that the dictionary of a damaged file does not have.
    """
    width = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_text(column.type):
            lengths = text_lengths(column)
            longest = pc.max(lengths).as_py() or 0
            if longest > LONGEST_TEXT:
                row = pc.index(pc.greater(lengths, LONGEST_TEXT), True).as_py()
                raise too_long(locate(row), printable(name), lengths[row].as_py())
            width += longest
    table = pa.table(batch)
    n = _rows(width, max(len(table), 1))
    for start in range(0, len(table), n):
        yield table if n >= len(table) else copied(table, start, min(start + n, len(table)))


def copied(table: pa.Table | pa.RecordBatch, start: int, end: int) -> pa.Table | pa.RecordBatch:
    """The rows from `start` to `end`, as a copy: of text that is sliced, pyarrow 16 computes `if_else` wrongly."""
    return table.take(np.arange(start, end))


def text_lengths(column: pa.Array) -> pa.Array:
    """The number of bytes of each text, or null."""
    if pa.types.is_dictionary(column.type):
        return text_lengths(column.dictionary).take(column.indices)
    return pc.binary_length(column.cast(pa.large_binary()))


def _rows(width: float, most: int) -> int:
    return most if width * most <= AT_ONCE else max(1, int(AT_ONCE / width))
