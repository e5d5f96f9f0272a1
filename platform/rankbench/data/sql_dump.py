"""Rows of one table of a MySQL dump, as mysqldump and mariadb-dump write it, streamed by blocks of bytes.

    CREATE TABLE `page` (                        the order of the columns, which differs between years
      `page_id` int(8) unsigned NOT NULL, ...
    INSERT INTO `page` VALUES (1,0,'April',0),(2,0,'Rock \'n\' roll',0), ... ;       a line of a megabyte or more

Comments and other statements are skipped. Memory: one block, and the rows of one yielded table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import IO

import numba
import numpy as np
import pyarrow as pa

from rankbench.core.errors import DataError, printable
from rankbench.data.raw import RawFile

BLOCK = 4 << 20  # bytes read at once
LONGEST = 1 << 20  # bytes; limit for one row, and for one statement or comment without rows
BATCH = 1 << 20  # approximate number of rows in a yielded table

# What to read of a column: its whole number, its bytes, or the number of its bytes (0 for NULL).
SKIP, NUMBER, TEXT, LENGTH = range(4)
MORE, DONE, BAD = range(3)  # a block of rows is followed by more, is the last of its INSERT, or is malformed

# Quantifiers are possessive: on text that is not SQL a match fails in linear time.
STATEMENT = re.compile(
    rb"""
      (?P<gap>    [\s;]++ | (?:--|\#)[^\n\x00]*+\n | /\*.*?\*/ )
    | (?P<insert> INSERT\ INTO\ `(?P<into>[^`\x00]++)`\ VALUES )
    | (?P<other>  (?! -- | \# | /\* | INSERT\b )
                  (?: [^'"`;\x00]++ | '(?:[^'\\\x00]|\\.)*+' | "(?:[^"\\\x00]|\\.)*+" | `[^`\x00]*+` )*+ ; )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
INSERT = re.compile(rb"INSERT\b", re.IGNORECASE)
CREATE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`([^`]+)`", re.IGNORECASE)
# The blanks before a name are those of its line: from every line on, all empty lines that follow would be tried.
COLUMN = re.compile(rb"^[^\S\n]*+`([^`]++)`\s", re.MULTILINE)


def rows(raw: RawFile, table: str, wanted: Mapping[str, int]) -> Iterator[pa.Table]:
    """Yield tables of the `wanted` columns (name → NUMBER, TEXT or LENGTH; at most one TEXT): int64, or binary for TEXT.

    Raises DataError, naming the byte of the unpacked file, if it is not a dump, is truncated, or has rows before their
    CREATE TABLE; also if there is no CREATE TABLE of `table`, or a wanted column is missing.
    """
    created: dict[str, list[str]] = {}
    batch: list[pa.Table] = []
    n_batch, parser = 0, None
    with raw.open() as file:
        stream = _Stream(file, str(raw.path))
        while statement := stream.next_statement():
            if statement["other"] and (create := CREATE.match(statement["other"])):
                name, columns = _text(create[1]), [_text(column) for column in COLUMN.findall(statement["other"])]
                created[name] = columns
                if name == table:
                    parser = _Parser(columns, wanted, f"{raw.path}: table {table}")
            if not statement["insert"]:
                continue
            into = _text(statement["into"])
            if into not in created:
                raise stream.error(f"rows of {into!r} before its CREATE TABLE, which gives the order of the columns")
            own_parser = parser if into == table else _Parser(created[into], {}, f"{raw.path}: table {into}")
            for block in stream.rows(own_parser):
                batch.append(block)
                n_batch += len(block)
                if n_batch >= BATCH:
                    yield pa.concat_tables(batch)
                    batch, n_batch = [], 0
    if parser is None:
        raise DataError(f"{raw.path}: no CREATE TABLE `{table}`; this is not a dump of that table")
    if batch:
        yield pa.concat_tables(batch)


class _Stream:
    """The unpacked bytes that are not parsed yet, and their position in the file."""

    def __init__(self, file: IO[bytes], path: str):
        self._file, self._path = file, path
        self._bytes, self._at, self._before, self._ended = b"", 0, 0, False

    def next_statement(self) -> re.Match | None:
        """The next statement, or the head of an INSERT whose rows follow; None at the end."""
        while True:
            if statement := STATEMENT.match(self._bytes, self._at):
                self._at = statement.end()
                if not statement["gap"]:
                    return statement
            elif INSERT.match(self._bytes, self._at) and (self._ended or len(self._bytes) - self._at > 1000):
                raise self.error("expected INSERT INTO `table` VALUES (...)")
            elif self._ended:
                if self._at == len(self._bytes):
                    return None
                raise self.error("the file ends within a statement, or is not an SQL dump; delete it and fetch again")
            elif len(self._bytes) - self._at > LONGEST:
                raise self.error(f"no statement ends within {LONGEST >> 20} MB")
            else:
                self._read()

    def rows(self, parser: _Parser) -> Iterator[pa.Table]:
        """Yield the rows of one INSERT, block by block."""
        state = MORE
        while state == MORE:
            block, self._at, state = parser.parse(self._bytes, self._at)
            if state == BAD:
                raise self.error(f"expected rows of {parser.n_columns} columns such as (1,0,'Title')")
            if len(block):
                yield block
            if state == MORE:
                if self._ended:
                    raise self.error("the file ends within a row: it is truncated; delete it and fetch again")
                if len(self._bytes) - self._at > LONGEST:
                    raise self.error(f"a row is longer than {LONGEST >> 20} MB")
                self._read()

    def error(self, problem: str) -> DataError:
        excerpt = repr(self._bytes[self._at : self._at + 24])[1:]
        return DataError(f"{self._path}: byte {self._before + self._at} (unpacked): {problem}; found {excerpt}")

    def _read(self) -> None:
        content = self._file.read(BLOCK)
        self._ended = not content
        self._before += self._at
        # The line end added here closes a comment in the last line.
        self._bytes, self._at = self._bytes[self._at :] + (content or b"\n"), 0


class _Parser:
    """Parses the rows of one table; all blocks share its buffers."""

    def __init__(self, columns: list[str], wanted: Mapping[str, int], source: str):
        if missing := [name for name in wanted if name not in columns]:
            listed = printable(", ".join(columns)) or "none"
            raise DataError(f"{source} has no column {missing[0]}; its columns: {listed}. The expected schema is that of 2025")
        self.n_columns = len(columns)
        self._kinds = np.array([wanted.get(name, SKIP) for name in columns], np.uint8)
        self._names = [name for name in columns if wanted.get(name) in (NUMBER, LENGTH)]
        self._text = next((name for name in columns if wanted.get(name) == TEXT), None)
        size = BLOCK + LONGEST + 1
        most = size // 4 if wanted else 0  # rows; the shortest possible one is `(1),`
        self._numbers = np.empty((len(self._names), most), np.int64)
        self._letters, self._ends = np.empty(size, np.uint8), np.zeros(most + 1, np.int32)

    def parse(self, content: bytes, at: int) -> tuple[pa.Table, int, int]:
        """The complete rows from byte `at` on, the byte where the next row begins (or the bad one), and MORE, DONE or BAD."""
        block = np.frombuffer(content, np.uint8)
        n, at, state = _parse(block, at, self._kinds, self._numbers, self._letters, self._ends)
        table = {name: self._numbers[slot, :n].copy() for slot, name in enumerate(self._names)}
        if self._text is not None:
            ends = self._ends[: n + 1].copy()
            letters = self._letters[: ends[-1]].copy()
            table[self._text] = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
        return pa.table(table), at, state


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


@numba.njit(nogil=True, cache=True)
def _parse(block, start, kinds, numbers, letters, ends):
    """Returns (number of rows, position, state). Rows are written to `numbers` (wanted numbers, rows) and, as bytes without
    escapes, to `letters` with their `ends` (rows + 1,). A row that continues in the next block is left to that block.
    """
    stop, n_columns, keep = len(block), len(kinds), len(ends) > 1
    n, used = 0, 0
    while True:
        at = _blank(block, start)
        if at == stop:
            return n, start, MORE
        if block[at] != ord("("):
            return n, at, BAD
        at += 1
        slot, written = 0, used
        for column in range(n_columns):
            kind = kinds[column]
            at = _blank(block, at)
            if at == stop:
                return n, start, MORE
            value, first = 0, at
            if block[at] == ord("'"):
                if kind == NUMBER:
                    return n, at, BAD
                at += 1
                while True:
                    if at + 1 >= stop:
                        return n, start, MORE
                    letter = block[at]
                    if letter == ord("'"):
                        if block[at + 1] != ord("'"):
                            break
                        at += 1
                    elif letter == ord("\\"):
                        at += 1
                        letter = _unescaped(block[at])
                    elif letter == 0:
                        return n, at, BAD
                    if kind == TEXT:
                        letters[written] = letter
                        written += 1
                    value += 1
                    at += 1
                at += 1
            else:
                while at < stop and _is_bare(block[at]):
                    at += 1
                if at == stop:
                    return n, start, MORE
                if at == first or kind == TEXT:
                    return n, first, BAD
                if kind == NUMBER:
                    negative = block[first] == ord("-")
                    digits = first + negative
                    if at == digits or at - digits > 18:
                        return n, first, BAD
                    for position in range(digits, at):
                        if block[position] < ord("0") or block[position] > ord("9"):
                            return n, first, BAD
                        value = 10 * value + (block[position] - ord("0"))
                    if negative:
                        value = -value
            if kind in (NUMBER, LENGTH):
                numbers[slot, n] = value
                slot += 1
            at = _blank(block, at)
            if at == stop:
                return n, start, MORE
            if block[at] != (ord(")") if column == n_columns - 1 else ord(",")):
                return n, at, BAD
            at += 1
        at = _blank(block, at)
        if at == stop:
            return n, start, MORE
        if block[at] != ord(",") and block[at] != ord(";"):
            return n, at, BAD
        if keep:
            n, used = n + 1, written
            ends[n] = used
        start = at + 1
        if block[at] == ord(";"):
            return n, start, DONE


@numba.njit(nogil=True, cache=True)
def _blank(block, at):
    """The first position from `at` on that is not white space."""
    while at < len(block) and (block[at] == 32 or 9 <= block[at] <= 13):
        at += 1
    return at


@numba.njit(nogil=True, cache=True)
def _is_bare(letter):
    """Whether the letter is part of a number or of NULL."""
    return (
        ord("0") <= letter <= ord("9")
        or ord("a") <= letter <= ord("z")
        or ord("A") <= letter <= ord("Z")
        or letter == ord("-")
        or letter == ord("+")
        or letter == ord(".")
    )


@numba.njit(nogil=True, cache=True)
def _unescaped(letter):
    """The byte that a backslash followed by `letter` stands for."""
    if letter == ord("0"):
        return np.uint8(0)
    if letter == ord("n"):
        return np.uint8(10)
    if letter == ord("r"):
        return np.uint8(13)
    if letter == ord("t"):
        return np.uint8(9)
    if letter == ord("b"):
        return np.uint8(8)
    if letter == ord("Z"):
        return np.uint8(26)
    return letter
