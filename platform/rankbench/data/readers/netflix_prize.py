"""Ratings of the Netflix Prize: a line `movie:`, followed by one line `customer,rating,date` per rating of that movie.

    1:
    1488844,3,2005-09-06

The file is one text with all movies, such as the four files combined_data_*.txt joined together, or a tar of mv_0000001.txt
and so on, such as training_set.tar of the first publication.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from rankbench.core.errors import DataError, printable
from rankbench.data import tar
from rankbench.data.columns import first_bad
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import reads

BATCH = 1 << 16  # minimum number of ratings in one table
MOVIE = re.compile(rb"\d{1,18}:")
NO_MOVIE = -1
RATING = {"user": pa.uint64(), "value": pa.uint16(), "time": pa.date32()}  # the columns of a line
COLUMNS = pa.schema({"user": pa.int64(), "item": pa.int64(), "value": pa.float64(), "time": pa.int64()})


@reads("netflix-prize")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user (the customer), item (the movie), int64, and, if the card gives them any name, value (the
    rating, float64) and time (the date, int64 seconds).

    Raises DataError naming a line that has neither form, or a rating before the first movie.
    """
    names = ["user", "item", *(name for name in ("value", "time") if getattr(raw.spec, name) is not None)]
    batch: list[pa.Table] = []
    with raw.open() as file:
        for source, text in _texts(file, raw):
            movie = NO_MOVIE
            for number, block in blocks_of_lines(text, source, raw.spec.encoding):
                try:
                    table, movie = _ratings(block, movie)
                except ValueError:  # which pa.ArrowInvalid is
                    raise _malformed(source, number, block, movie) from None
                batch.append(table)
                if sum(map(len, batch)) >= BATCH:
                    yield pa.concat_tables(batch).select(names)
                    batch = []
    if batch:
        yield pa.concat_tables(batch).select(names)


def _texts(file: IO[bytes], raw: RawFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the text, or each text of the tar, after its name for error messages."""
    if file.peek(512)[257:262] != b"ustar":
        yield str(raw.path), file
        return
    for name, text in tar.files(file, raw.limit()):
        yield f"{raw.path}: {printable(name)}", text


def _ratings(block: bytes, movie: int) -> tuple[pa.Table, int]:
    """The ratings of whole lines, and the movie of the line that follows; `movie`: that of the first line.

    Raises ValueError for a malformed line, or a rating before the first movie.
    """
    letters = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
    ends = np.flatnonzero(letters == ord("\n")) + 1
    lengths = np.diff(ends, prepend=0)
    is_movie = (lengths > 1) & (letters[ends - 2] == ord(":"))
    is_rating = (lengths > 1) & ~is_movie
    movies, ratings, start = [movie], [], 0
    view = memoryview(block)
    for end, length in zip(ends[is_movie], lengths[is_movie], strict=True):
        if not MOVIE.fullmatch(name := block[end - length : end - 1]):
            raise ValueError("not a movie")
        movies.append(int(name[:-1]))
        ratings.append(view[start : end - length])
        start = end
    text = b"".join([*ratings, view[start:]])
    item = np.asarray(movies, np.int64)[np.cumsum(is_movie)[is_rating]]
    if not len(item):
        return COLUMNS.empty_table(), movies[-1]
    if item[0] == NO_MOVIE:
        raise ValueError("no movie")
    options = csv.ReadOptions(column_names=list(RATING))
    types = csv.ConvertOptions(column_types=RATING, null_values=[])
    table = csv.read_csv(pa.BufferReader(text), options, csv.ParseOptions(quote_char=False), types)
    seconds = table["time"].cast(pa.timestamp("s")).cast(pa.int64())
    return pa.table([table["user"].cast(pa.int64()), item, table["value"].cast(pa.float64()), seconds], COLUMNS), movies[-1]


def _malformed(source: str, number: int, block: bytes, movie: int) -> DataError:
    """The error for the first malformed line, which is found by bisection."""
    lines = block.split(b"\n")
    first = first_bad(len(lines), lambda n: _ratings(b"\n".join(lines[:n]), movie))
    movie = _ratings(b"\n".join([*lines[:first], b""]), movie)[1]
    number += first
    shown = printable(repr(lines[first][:40].decode(errors="replace")))
    if movie == NO_MOVIE:
        return DataError(f"{source}:{number}: expected a line with the movie first, such as 12:, found {shown}")
    return DataError(f"{source}:{number}: expected a movie, as in 12:, or a rating, as in 7,4,2005-09-06, found {shown}")
