"""Conversion of the columns of a raw file to ids, numbers and times; a bad value is an error that names its row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError, printable

Locate = Callable[[int], str]  # a row of the table → its file and line, for messages


def checked(raw: pa.Table, locate: Locate) -> pa.Table:
    """Return `raw` after checking that every id is present, not NaN, not negative and without NUL, and that every value is
    finite in float32. Raises DataError for the first row that is not.
    """
    for name in ("user", "item"):
        bad = pc.is_null(raw[name])
        if pa.types.is_string(raw[name].type):
            wrong = pc.match_substring_regex(raw[name], r"\x00|^-[0-9.]+$|^[nN][aA][nN]$|^$")
            bad = pc.or_(bad, pc.fill_null(wrong, False))
        else:
            bad = pc.or_(bad, pc.fill_null(pc.less(raw[name], 0), False))
        if (row := pc.index(bad, True).as_py()) >= 0:
            expected = "every interaction needs an id: a whole number from 0 on, or a word"
            raise DataError(f"{locate(row)}: {name} is {raw[name][row].as_py()!r}; {expected}")
    if "value" in raw.column_names:
        value = raw["value"].to_numpy()
        bad = np.flatnonzero(~(np.abs(value) <= np.finfo(np.float32).max))
        if len(bad):
            raise DataError(f"{locate(int(bad[0]))}: value is {value[bad[0]]}; every interaction needs a finite value")
    return raw


def ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as int64 or string. Whole numbers may be stored as floats. Raises pa.ArrowInvalid for a fraction."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(pa.int64() if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.string())


def numbers(column: pa.ChunkedArray, locate: Locate) -> pa.ChunkedArray:
    """Text or numbers as float64. Raises DataError for the first row that is not a number."""
    return _converted(column, lambda part: part.cast(pa.float64()), "a number", locate)


def seconds(column: pa.ChunkedArray, locate: Locate) -> pa.ChunkedArray:
    """Whole seconds (1e9 is one), dates, timestamps, or text of any of these, as int64 seconds since 1970.

    Raises DataError for the first row that is none of them.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    if not pa.types.is_string(kind):
        return _converted(column, lambda part: part.cast(pa.float64()).cast(pa.int64()), "whole seconds", locate)
    first = next((text for text in column.slice(0, 1000).to_pylist() if text is not None), "")
    if len(first) >= 10 and first[4:5] == "-":
        return _converted(column, _instants, "a date such as 2005-09-06 or 2010-10-19T23:55:27Z", locate)
    return _converted(column, lambda part: part.cast(pa.float64()).cast(pa.int64()), "a whole number", locate)


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.timestamp("s")).cast(pa.int64())  # without a zone: UTC
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())


def _converted(column: pa.ChunkedArray, convert: Callable, expected: str, locate: Locate) -> pa.ChunkedArray:
    try:
        return convert(column)
    except pa.ArrowInvalid:
        pass
    first, end = 0, len(column)  # the first bad row lies in [first, end); bisected
    while end - first > 1:
        middle = (first + end) // 2
        try:
            convert(column.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            end = middle
    raise DataError(f"{locate(first)}: expected {expected}, found {printable(repr(column[first].as_py()))}")
