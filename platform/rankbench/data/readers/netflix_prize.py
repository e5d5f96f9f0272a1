"""Ratings of the Netflix Prize: a line `movie:`, followed by one line `customer,rating,date` per rating of that movie.

    1:
    1488844,3,2005-09-06

The file is one text with all movies, such as the four files combined_data_*.txt joined together, or a tar of mv_0000001.txt
and so on, such as training_set.tar of the first publication.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numba
import numpy as np
import pyarrow as pa

from rankbench.core.errors import DataError, printable
from rankbench.data import tar
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import reads

BATCH = 1 << 18  # minimum number of ratings in one table
SECONDS_PER_DAY = 86400
DAYS_BEFORE_1970 = 719468  # from 1 March of the year 0, the first day of the calendar computation below
NO_MOVIE = -1
NO_DATE = -(1 << 31)


@reads("netflix-prize")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user (the customer), item (the movie), int64, and, if the card gives them any name, value (the
    rating, float64) and time (the date, int64 seconds).

    Raises DataError naming a line that has neither form, or a rating before the first movie.
    """
    batch: list[tuple[np.ndarray, ...]] = []
    with raw.open() as file:
        for source, text in _texts(file, raw):
            movie = NO_MOVIE
            for number, block in blocks_of_lines(text, source, raw.spec.encoding):
                letters = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
                *columns, n, movie, bad = _parse(letters, movie, int(np.count_nonzero(letters == ord(","))) // 2)
                if bad >= 0:
                    raise _malformed(source, number, block, bad, movie)
                batch.append(tuple(column[:n] for column in columns))
                if sum(len(user) for user, *_ in batch) >= BATCH:
                    yield _table(batch, raw)
                    batch = []
    if batch:
        yield _table(batch, raw)


def _texts(file: IO[bytes], raw: RawFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the text, or each text of the tar, after its name for error messages."""
    if file.peek(512)[257:262] != b"ustar":
        yield str(raw.path), file
        return
    for name, text in tar.files(file, raw.limit()):
        yield f"{raw.path}: {printable(name)}", text


def _table(batch: list[tuple[np.ndarray, ...]], raw: RawFile) -> pa.Table:
    user, item, rating, day = (np.concatenate(column) for column in zip(*batch, strict=True))
    columns = {"user": user, "item": item}
    if raw.spec.value is not None:
        columns["value"] = rating.astype(np.float64)
    if raw.spec.time is not None:
        columns["time"] = day.astype(np.int64) * SECONDS_PER_DAY
    return pa.table(columns)


def _malformed(source: str, number: int, block: bytes, position: int, movie: int) -> DataError:
    line = block[position:].partition(b"\n")[0]
    number += block.count(b"\n", 0, position)
    shown = printable(repr(line[:40].decode(errors="replace")))
    if movie == NO_MOVIE:
        return DataError(f"{source}:{number}: expected a line with the movie first, such as 12:, found {shown}")
    return DataError(f"{source}:{number}: expected a movie, as in 12:, or a rating, as in 7,4,2005-09-06, found {shown}")


@numba.njit(nogil=True, cache=True)
def _parse(text, movie, most):
    """Returns (user, item, rating, day, n, movie, bad) of whole lines: the first four (most,), filled up to n; `day` counts
    from 1970, `movie` is the movie of the next line, `bad` the start of the first malformed line, or -1.
    """
    user, item = np.empty(most, np.int64), np.empty(most, np.int64)
    rating, day = np.empty(most, np.int16), np.empty(most, np.int32)
    n, at = 0, 0
    while at < len(text):
        start = at
        if text[at] == ord("\n"):
            at += 1
            continue
        first, at = _number(text, at, 18)
        if first < 0:
            return user, item, rating, day, n, movie, start
        if text[at] == ord(":") and text[at + 1] == ord("\n"):
            movie = first
            at += 2
            continue
        if text[at] != ord(",") or movie < 0:
            return user, item, rating, day, n, movie, start
        stars, at = _number(text, at + 1, 4)
        if stars < 0 or text[at] != ord(","):
            return user, item, rating, day, n, movie, start
        date, at = _date(text, at + 1)
        if date == NO_DATE or text[at] != ord("\n"):
            return user, item, rating, day, n, movie, start
        user[n], item[n], rating[n], day[n] = first, movie, stars, date
        n += 1
        at += 1
    return user, item, rating, day, n, movie, -1


@numba.njit(nogil=True, cache=True)
def _number(text, at, most_digits):
    """The whole number at `at`, or -1, and the position after it. The text ends in a line end, where a number stops."""
    value, start = 0, at
    while ord("0") <= text[at] <= ord("9"):
        if at - start == most_digits:
            return -1, at
        value = 10 * value + (text[at] - ord("0"))
        at += 1
    return (value if at > start else -1), at


@numba.njit(nogil=True, cache=True)
def _date(text, at):
    """Days from 1970 to the date yyyy-mm-dd at `at`, or NO_DATE, and the position after it."""
    year, dash = _number(text, at, 4)
    if year < 0 or dash != at + 4 or text[dash] != ord("-"):
        return NO_DATE, at
    month, dash = _number(text, at + 5, 2)
    if dash != at + 7 or text[dash] != ord("-"):
        return NO_DATE, at
    day, end = _number(text, at + 8, 2)
    if end != at + 10 or not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        return NO_DATE, at
    # Years that begin in March end with the leap day, and five months from March on have 153 days.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1
    return days - DAYS_BEFORE_1970, end


@numba.njit(nogil=True, cache=True)
def _days(year, month):
    if month == 2:
        return 29 if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0 else 28
    return 30 if month in (4, 6, 9, 11) else 31
