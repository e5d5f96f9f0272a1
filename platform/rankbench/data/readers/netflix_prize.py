"""Ratings of the Netflix Prize: a line `movie:`, then its ratings, a line `customer,rating,date` each.

    1:
    1488844,3,2005-09-06

In one text with all movies, as the four files combined_data_*.txt, joined, are; or in a tar of mv_0000001.txt and so on, as the
training_set.tar of the first publication is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

import numba
import numpy as np
import pyarrow as pa

from rankbench.core.errors import DataError, printable
from rankbench.data.raw import RawFile, blocks_of_lines

BATCH = 1 << 18  # ratings in one table, at least
SECONDS_PER_DAY = 86400
DAYS_BEFORE_1970 = 719468  # since 1 March of the year 0, where the reckoning below begins
NO_MOVIE = -1
NO_DATE = -(1 << 31)


def read(raw: RawFile) -> Iterator[pa.Table]:
    """Columns user (the customer), item (the movie), int64, and where the card names them, by any name, value (the rating,
    float64) and time (the date, int64 seconds).

    Raises DataError naming the line that is neither of the two forms, or a rating before the first movie.
    """
    found: list[tuple[np.ndarray, ...]] = []
    with raw.open() as file:
        for where, text in _texts(file, str(raw.path)):
            movie = NO_MOVIE
            for number, block in blocks_of_lines(text, where):
                letters = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
                *columns, n, movie, bad = _parse(letters, movie, int(np.count_nonzero(letters == ord(","))) // 2)
                if bad >= 0:
                    raise _malformed(where, number, block, bad, movie)
                found.append(tuple(column[:n] for column in columns))
                if sum(len(user) for user, *_ in found) >= BATCH:
                    yield _table(found, raw)
                    found = []
    if found:
        yield _table(found, raw)


def _texts(file: IO[bytes], where: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The text, or each text of the tar, and where it lies."""
    if file.peek(512)[257:262] != b"ustar":
        yield where, file
        return
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for entry in archive:
            if entry.isfile():
                yield f"{where}: {printable(entry.name)}", archive.extractfile(entry)


def _table(found: list[tuple[np.ndarray, ...]], raw: RawFile) -> pa.Table:
    user, item, rating, day = (np.concatenate(column) for column in zip(*found, strict=True))
    columns = {"user": user, "item": item}
    if raw.spec.value is not None:
        columns["value"] = rating.astype(np.float64)
    if raw.spec.time is not None:
        columns["time"] = day.astype(np.int64) * SECONDS_PER_DAY
    return pa.table(columns)


def _malformed(where: str, number: int, block: bytes, position: int, movie: int) -> DataError:
    line = block[position:].partition(b"\n")[0]
    number += block.count(b"\n", 0, position)
    shown = printable(repr(line[:40].decode(errors="replace")))
    if movie == NO_MOVIE:
        return DataError(f"{where}:{number}: expected a line with the movie first, such as 12:, found {shown}")
    return DataError(f"{where}:{number}: expected a movie, as in 12:, or a rating, as in 7,4,2005-09-06, found {shown}")


@numba.njit(nogil=True, cache=True)
def _parse(text, movie, most):
    """(user, item, rating, day, n, movie, bad) of whole lines: the first four (most,), filled up to n; `day` counts from
    1970, `movie` is the one that the next line belongs to, `bad` where the first malformed line begins, or -1.
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
        when, at = _date(text, at + 1)
        if when == NO_DATE or text[at] != ord("\n"):
            return user, item, rating, day, n, movie, start
        user[n], item[n], rating[n], day[n] = first, movie, stars, when
        n += 1
        at += 1
    return user, item, rating, day, n, movie, -1


@numba.njit(nogil=True, cache=True)
def _number(text, at, most_digits):
    """The whole number at `at`, or -1, and the position behind it. The text ends in a line end, so that none is read past."""
    value, start = 0, at
    while ord("0") <= text[at] <= ord("9"):
        if at - start == most_digits:
            return -1, at
        value = 10 * value + (text[at] - ord("0"))
        at += 1
    return (value if at > start else -1), at


@numba.njit(nogil=True, cache=True)
def _date(text, at):
    """Days from 1970 to the date yyyy-mm-dd at `at`, or NO_DATE, and the position behind it."""
    year, dash = _number(text, at, 4)
    if year < 0 or dash != at + 4 or text[dash] != ord("-"):
        return NO_DATE, at
    month, dash = _number(text, at + 5, 2)
    if dash != at + 7 or text[dash] != ord("-"):
        return NO_DATE, at
    day, end = _number(text, at + 8, 2)
    if end != at + 10 or not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        return NO_DATE, at
    # Years that begin in March end in the leap day; then 153 days are five months.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1
    return days - DAYS_BEFORE_1970, end


@numba.njit(nogil=True, cache=True)
def _days(year, month):
    if month == 2:
        return 29 if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0 else 28
    return 30 if month in (4, 6, 9, 11) else 31
