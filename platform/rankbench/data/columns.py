"""Conversion of the columns of a raw file to ids, numbers and times; a bad value is an error that names its row."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError, first_line, printable

EXACT = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}  # bits of a float → where it begins to stand for several whole numbers

WRONG_TEXT = r"\x00|^-[0-9.]+$"  # of an id
# Text has no null of its own, so that programs write a word instead.
MISSING_TEXT = r"^ *(|[nN][aA][nN]|NULL|null|None|<NA>|\\N) *$"
MISSING_BESIDE_NULL = r"^$|^[nN][aA][nN]$"  # in JSON, where None may be someone's name
ADVICE = "; `prepare: [drop_missing]` in the card drops rows without one, and counts them"
LONGEST_TEXT = 1000  # bytes of an id; a hash has 40, and few links have hundreds
Locate = Callable[[int], str]  # a row of the table → its file and line, for messages
UNREADABLE = (pa.ArrowException, OSError, ValueError)  # what Arrow raises for damaged pages and values that do not fit

TEXT = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip
NUMBER = (pa.types.is_integer, pa.types.is_floating)
MISSING = (pa.types.is_null,)
ID = (*NUMBER, *TEXT)
TYPES = {
    "user": ID,
    "item": ID,
    "value": (*NUMBER, *TEXT, *MISSING, pa.types.is_decimal),
    "time": (*NUMBER, *TEXT, *MISSING, pa.types.is_timestamp, pa.types.is_date),
}


def interactions(
    columns: dict[str, pa.ChunkedArray], locate: Locate, keep_missing: bool = False, missing: str = MISSING_TEXT
) -> pa.Table:
    """The table of interactions: user and item as int64 or string; value, if given, as float64; time, if given, as `_moments`
    returns it.

    A missing id or value (null, NaN or a text like `missing`) is an error, or, with `keep_missing`, a null. Raises DataError
    for the first bad row, and ValueError for an id that is a fraction.
    """
    if keep_missing:
        columns = {name: _null_if_missing(column, missing) for name, column in columns.items()}
    result = {name: _ids(name, columns[name]) for name in ("user", "item")}
    if "value" in columns:
        expected = "the value to be a number"
        result["value"] = _converted(columns["value"], lambda part: part.cast(pa.float64()), expected, locate)
    if "time" in columns:
        result["time"] = _times(columns["time"], locate)
    return checked(pa.table(result), locate, keep_missing, missing)


def checked(raw: pa.Table, locate: Locate, keep_missing: bool = False, missing: str = MISSING_TEXT) -> pa.Table:
    """Return `raw` after checking that every id is present, not NaN, not negative, not too long and without NUL, and that every
    value is finite in float32; with `keep_missing`, ids and values may be null. Raises DataError for the first row that is not.
    """
    for name in ("user", "item"):
        if pa.types.is_string(raw[name].type):
            lengths = pc.binary_length(raw[name])
            if (row := pc.index(pc.greater(lengths, LONGEST_TEXT), True).as_py()) >= 0:
                raise too_long(locate(row), name, lengths[row].as_py())
            bad = pc.match_substring_regex(raw[name], WRONG_TEXT if keep_missing else f"{WRONG_TEXT}|{missing}")
        else:
            bad = pc.less(raw[name], 0)
        if (row := pc.index(pc.fill_null(bad, not keep_missing), True).as_py()) >= 0:
            value = raw[name][row].as_py()
            expected = "every interaction needs an id: a whole number from 0 on, or a word"
            advice = ADVICE if value is None or re.search(missing, str(value)) else ""
            raise DataError(f"{locate(row)}: {name} is {value!r}; {expected}{advice}")
    if "value" in raw.column_names:
        value = raw["value"].to_numpy()
        bad = np.flatnonzero(~(np.abs(value) <= np.finfo(np.float32).max) & ~(np.isnan(value) & keep_missing))
        if len(bad):
            worst = value[bad[0]]
            advice = ADVICE if np.isnan(worst) else ""
            raise DataError(f"{locate(int(bad[0]))}: value is {worst}; every interaction needs a finite value{advice}")
    return raw


def too_long(where: str, column: str, n_bytes: int) -> DataError:
    return DataError(f"{where}: {column} is a text of {n_bytes:,} bytes; at most {LONGEST_TEXT:,} are read")


def _null_if_missing(column: pa.ChunkedArray, missing: str = MISSING_TEXT) -> pa.ChunkedArray:
    if pa.types.is_string(column.type):
        rows = pc.match_substring_regex(column, missing)
    elif pa.types.is_floating(column.type):
        rows = pc.is_nan(column.cast(pa.float64()))
    else:
        return column
    return pc.if_else(pc.fill_null(rows, True), pa.scalar(None, column.type), column)


def _ids(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as int64 or string. Whole numbers may be stored as floats, NaN as null. Raises ValueError for a fraction, and for a
    float that may stand for several whole numbers, as one of 2^53 or more does.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind):
        column = _null_if_missing(column)
        if (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0) >= EXACT[kind.bit_width]:
            raise ValueError(
                f"the column {name!r}: ids of 2^53 or more (2^24 in 32 bits) are not exact as floats, so that different ones "
                "could become one; store them as whole numbers (in pandas, Int64) or as text"
            )
    try:
        return column.cast(pa.int64() if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.string())
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column {name!r}: ids are whole numbers below 2^63 or text ({first_line(error)})") from None


def _times(column: pa.ChunkedArray, locate: Locate) -> pa.ChunkedArray:
    """Whole seconds (1e9 is one), dates, timestamps, or text of any of these, as int64 seconds since 1970 or, where one has a
    fraction of a second, timestamp[us]. Raises DataError for the first row that is none of them.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(column)
    if not pa.types.is_string(kind):
        return _converted(column, _seconds, "the time in whole seconds", locate)
    first = next((text for text in column.slice(0, 1000).to_pylist() if text and not re.search(MISSING_TEXT, text)), "")
    if len(first) >= 10 and first[4:5] == "-":
        return _converted(column, _instants, "the time as a date such as 2005-09-06 or 2010-10-19T23:55:27Z", locate)
    return _converted(column, _seconds, "the time in whole seconds since 1970 or as a date", locate)


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.float64()).cast(pa.int64())


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return _moments(column.cast(pa.timestamp("us")))  # without a zone: UTC
    except pa.ArrowInvalid:
        return _moments(column.cast(pa.timestamp("us", tz="UTC")))


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates or timestamps as int64 seconds or, if one has a fraction of a second, as timestamp[us]."""
    seconds = column.cast(pa.timestamp("s"), safe=False)
    if pa.types.is_timestamp(column.type):
        exact = column.cast(pa.timestamp(column.type.unit))  # without its zone
        if pc.any(pc.not_equal(exact, seconds)).as_py():
            return exact.cast(pa.timestamp("us"), safe=False)
    return seconds.cast(pa.int64())


def _converted(column: pa.ChunkedArray, convert: Callable, expected: str, locate: Locate) -> pa.ChunkedArray:
    try:
        return convert(column)
    except pa.ArrowInvalid:
        column = _null_if_missing(column)
    try:
        return convert(column)
    except pa.ArrowInvalid:
        first = first_bad(len(column), lambda n: convert(column.slice(0, n)))
    raise DataError(f"{locate(first)}: expected {expected}, found {printable(repr(column[first].as_py()))}")


def first_bad(n_rows: int, read: Callable[[int], Any]) -> int:
    """The first row, from 0, of which `read(n)`, which reads n rows, raises ValueError (as pa.ArrowInvalid is); bisected."""

    def is_bad(row: int) -> bool:
        try:
            read(row + 1)
        except ValueError:
            return True
        return False

    return bisect_left(range(n_rows - 1), True, key=is_bad)


def require_type(name: str, kind: pa.DataType, column: str, source: str) -> None:
    """Raise DataError if a column of type `kind` cannot be the user, item, value or time, as `name` says."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(fits(kind) for fits in TYPES[name]):
        expected = "whole numbers or text" if name in ("user", "item") else "numbers, dates or text"
        raise DataError(f"{source}: the column {column!r} is {printable(str(kind))}; {name} needs {expected}")


def listed(columns: Sequence[Any]) -> str:
    """The first names of columns, for messages."""
    return printable(", ".join(map(str, columns[:12])))[:200]


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type is text, perhaps as a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(fits(kind) for fits in TEXT)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without dictionary encoding, text as strings. Raises pa.ArrowInvalid if text is not valid UTF-8."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    result = column.cast(pa.string() if is_text(kind) else kind)
    result.validate(full=True)
    return result
