"""Text of Parquet columns in bounded memory: a few bytes of such a file may be a long text that a million rows repeat.

The columns are read as dictionaries, which have each text once, and cut into tables of bounded size before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankbench.core.errors import printable
from rankbench.data.column_types import is_text
from rankbench.data.columns import LONGEST_TEXT, Locate, too_long
from rankbench.data.raw import RawFile, bomb

AT_ONCE = 32 << 20  # bytes of text in one table
# Text that is stored by its difference to the row before cannot be read as a dictionary, as pyarrow says in these words.
NO_DICTIONARY = "Not yet implemented: DecodeArrow of DictAccumulator"
FEW_ROWS = 1024  # are read at once of such text: how long it is is not known before


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
    yield from cut(pa.table(batch), width)


def cut(table: pa.Table, width: int) -> Iterator[pa.Table]:
    """Cut a table, of which a row will have at most `width` bytes of text, into tables of at most 32 MB of it."""
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
