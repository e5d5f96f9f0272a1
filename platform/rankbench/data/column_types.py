"""Types of Arrow columns that can be ids, values and times of interactions, and these columns without their encoding."""

from __future__ import annotations

import pyarrow as pa

from rankbench.core.errors import DataError, printable

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


def require_type(name: str, kind: pa.DataType, column: str, source: str) -> None:
    """Raise DataError if a column of type `kind` cannot be the user, item, value or time, as `name` says."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(fits(kind) for fits in TYPES[name]):
        expected = "whole numbers or text" if name in ("user", "item") else "numbers, dates or text"
        raise DataError(f"{source}: the column {column!r} is {printable(str(kind))}; {name} needs {expected}")


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
