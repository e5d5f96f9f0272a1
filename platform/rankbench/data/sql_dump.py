r"""Rows of one table of a MySQL dump, as mysqldump and mariadb-dump write it, block by block.

    CREATE TABLE `page` (                        the order of the columns, which differs between years
      `page_id` int(8) unsigned NOT NULL, ...
    ) ENGINE=InnoDB ...;
    INSERT INTO `page` VALUES (1,0,'April',0),(2,0,'Rock \'n\' roll',0), ... ;       a line of a megabyte or more

A statement begins on a line of its own, and text has no line end, because dumps escape it. Other statements, comments and other
tables are skipped. What follows a backslash is the letter itself: MediaWiki's titles have no control characters, of which dumps
write a letter. Memory: one block of lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from rankbench.core.errors import DataError, first_line, printable
from rankbench.data.raw import RawFile, blocks_of_lines

CREATE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`([^`]+)`", re.IGNORECASE)
COLUMN = re.compile(rb"\s*`([^`]+)`\s")
INSERT = re.compile(rb"INSERT INTO `([^`]+)` VALUES", re.IGNORECASE)
# Quantifiers are possessive: on text that is not SQL a match fails in linear time.
FIELD = rb"(?:[^'(),\\]++|'(?:[^'\\]++|\\.|'')*+')"
ROW = re.compile(rb"\s*+\((%s(?:,%s)*+)\)\s*+[,;]" % (FIELD, FIELD))
ROWS = re.compile(rb"(?:%s)*+\s*+" % ROW.pattern)


def rows(raw: RawFile, table: str, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield tables of the `wanted` columns (name → int64 or binary; NULL of the latter is empty), in their order.

    Raises DataError, naming the line, if the file is truncated, or has malformed rows, or rows before their CREATE TABLE; also
    if there is no CREATE TABLE of `table`, or a wanted column is missing.
    """
    columns: list[str] | None = None
    is_creating = is_inserting = False
    with raw.open() as file:
        for first, block in blocks_of_lines(file, str(raw.path)):
            found: list[tuple[str, bytes]] = []  # where a line is, and its rows
            for number, line in enumerate(io.BytesIO(block), first):
                where = f"{raw.path}:{number}"
                if is_creating:
                    if column := COLUMN.match(line):
                        columns.append(printable(column[1].decode(errors="replace")))
                    is_creating = not line.startswith(b")")
                elif is_inserting or ((insert := INSERT.match(line)) and insert[1] == table.encode()):
                    if columns is None:
                        raise DataError(
                            f"{where}: rows of {table!r} before its CREATE TABLE, which gives the order of the columns"
                        )
                    found.append((where, line if is_inserting else line[insert.end() :]))
                    is_inserting = not line.rstrip().endswith(b";")
                elif (create := CREATE.match(line)) and create[1] == table.encode():
                    columns, is_creating = [], True
            if found:
                yield _table(found, columns, wanted)
    if columns is None:
        raise DataError(f"{raw.path}: no CREATE TABLE `{table}`; this is not a dump of that table")
    if is_creating or is_inserting:
        raise DataError(f"{where}: the file ends within a statement: it is truncated; delete it and fetch again")


def _table(lines: list[tuple[str, bytes]], columns: list[str], wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of some lines. Raises DataError for the first line with a malformed one."""
    where, text = lines[0][0], b"".join(text for _, text in lines)
    if missing := [name for name in wanted if name not in columns]:
        listed = ", ".join(columns) or "none"
        raise DataError(f"{where}: no column {missing[0]}; the columns are {listed}. The expected schema is that of 2025")
    try:
        if (bad := ROWS.match(text).end()) < len(text):
            raise ValueError(f"found {text[bad : bad + 24]!r}".replace("b'", "'", 1))
        return _parsed(ROW.sub(rb"\1\n", text), columns, wanted)
    except ValueError as error:  # which pa.ArrowInvalid is
        for line in lines if len(lines) > 1 else ():
            _table([line], columns, wanted)
        example = f"rows of {len(columns)} columns such as (1,0,'Title')"
        raise DataError(f"{where}: expected {example}: {printable(first_line(error))}") from None


def _parsed(text: bytes, columns: list[str], wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The columns of rows that each end in \\n. Raises ValueError for another number of columns, or a value of another type."""
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=columns, block_size=max(len(text), 1)),
        csv.ParseOptions(quote_char="'", escape_char="\\", newlines_in_values=True),
        csv.ConvertOptions(
            include_columns=list(wanted),
            column_types=dict(wanted),
            null_values=["NULL"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for name, kind in wanted.items():
        if kind == pa.binary():
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], b""))
        elif table[name].null_count:
            raise ValueError(f"{name} is NULL")
    return table
