"""Columns as readers find them, turned into ids, numbers and times, or refused with the row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError, printable

Place = Callable[[int], str]  # where a row of the table lies, for the message


def checked(raw: pa.Table, place: Place) -> pa.Table:
    """`raw` as a reader made it, held to: every id is there, no NaN, no number below 0, without NUL, and every
    value is finite in float32.

    Raises DataError for the first row that is not; `place` says where that row is.
    """
    for name in ("user", "item"):
        bad = pc.is_null(raw[name])
        if pa.types.is_string(raw[name].type):
            wrong = pc.match_substring_regex(raw[name], r"\x00|^-[0-9.]+$|^[nN][aA][nN]$|^$")
            bad = pc.or_(bad, pc.fill_null(wrong, False))
        else:
            bad = pc.or_(bad, pc.fill_null(pc.less(raw[name], 0), False))
        if (row := pc.index(bad, True).as_py()) >= 0:
            found = raw[name][row].as_py()
            need = "every interaction needs an id: a whole number from 0 on, or a word"
            raise DataError(f"{place(row)}: {name} is {found!r}; {need}")
    if "value" in raw.column_names:
        value = raw["value"].to_numpy()
        bad = np.flatnonzero(~(np.abs(value) <= np.finfo(np.float32).max))
        if len(bad):
            raise DataError(f"{place(int(bad[0]))}: value is {value[bad[0]]}; every interaction needs a finite value")
    return raw


def ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """int64 or string. Whole numbers may come as floats, as where a missing one was filled in; a fraction is no id.

    Raises pa.ArrowInvalid for a fraction.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(pa.int64() if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.string())


def numbers(column: pa.ChunkedArray, place: Place) -> pa.ChunkedArray:
    """float64 from text or any number. Raises DataError for the first row that is no number."""
    return _converted(column, lambda part: part.cast(pa.float64()), "a number", place)


def seconds(column: pa.ChunkedArray, place: Place) -> pa.ChunkedArray:
    """int64 seconds since 1970 from whole numbers of seconds (1e9 is one), dates, instants, or text of any of these.

    Raises DataError for the first row that is none.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    if not pa.types.is_string(kind):
        return _converted(column, lambda part: part.cast(pa.float64()).cast(pa.int64()), "whole seconds", place)
    first = next((text for text in column.slice(0, 1000).to_pylist() if text is not None), "")
    if len(first) >= 10 and first[4:5] == "-":
        return _converted(column, _instants, "a date such as 2005-09-06 or 2010-10-19T23:55:27Z", place)
    return _converted(column, lambda part: part.cast(pa.float64()).cast(pa.int64()), "a whole number", place)


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.timestamp("s")).cast(pa.int64())  # without a zone: UTC
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64())


def _converted(column: pa.ChunkedArray, convert: Callable, expected: str, place: Place) -> pa.ChunkedArray:
    try:
        return convert(column)
    except pa.ArrowInvalid:
        pass
    first, beyond = 0, len(column)  # the first bad row is one of these; halved until it is alone
    while beyond - first > 1:
        middle = (first + beyond) // 2
        try:
            convert(column.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            beyond = middle
    raise DataError(f"{place(first)}: expected {expected}, found {printable(repr(column[first].as_py()))}")
