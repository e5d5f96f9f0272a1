"""One object a line: JSON, as the Amazon reviews of 2014 and 2018 are, or Python literals, as the Steam reviews of Kang and
McAuley are: `{u'username': u'x', u'product_id': u'10', u'date': u'2018-02-14'}`. The first line says which.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa

from rankbench.core.errors import DataError, printable
from rankbench.core.registry import nearest
from rankbench.data.columns import checked, numbers, seconds
from rankbench.data.raw import RawFile, blocks_of_lines

LONGEST_LITERAL = 1 << 20  # bytes; what Python's own parser is asked to take

# What a field may be; a boolean is a number to Python, not to us.
IDS, NUMBERS, TIMES = (str, int), (int, float, str), (int, float, str, type(None))


def read(raw: RawFile) -> Iterator[pa.Table]:
    """Columns user, item (string) and, where the card names them, value (float64), time (int64, perhaps null).

    Raises DataError naming the line that is no object, lacks a field, or has one of the wrong type.
    """
    where = str(raw.path)
    fields = {name: getattr(raw.spec, name) for name in ("user", "item", "value", "time")}
    fields = {name: str(field) for name, field in fields.items() if field is not None}
    with raw.open() as file:
        parse = None
        for first, block in blocks_of_lines(file, where):
            lines = [(number, line) for number, line in enumerate(block.split(b"\n"), start=first) if line.strip()]
            if not lines:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's parser minds a stray backslash in a review
                parse = parse or _language(lines[0][1])
                table = _table(lines, parse, fields, where)
            yield table


def _language(line: bytes) -> Callable[[bytes], Any]:
    """What parses `line`: a Python literal where it is no JSON, else JSON."""
    try:
        orjson.loads(line)
    except ValueError:
        try:
            if isinstance(_literal(line), dict):
                return _literal
        except ValueError:
            pass
    return orjson.loads


def _literal(line: bytes) -> Any:
    """The value that `line` writes down in Python, and nothing else: no name or call is looked at. Raises ValueError."""
    if len(line) > LONGEST_LITERAL:
        raise ValueError(f"longer than {LONGEST_LITERAL >> 20} MB")
    if b"\0" in line:  # Pythons differ in what they say of it
        raise ValueError("a null byte")
    try:
        return ast.literal_eval(line.strip().decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except SyntaxError as error:
        raise ValueError(error.msg) from None
    except (ValueError, TypeError, RecursionError, MemoryError):  # nested too deep, unhashable, or an expression
        raise ValueError("not a plain value") from None


def _table(lines: list[tuple[int, bytes]], parse: Callable, fields: dict[str, str], where: str) -> pa.Table:
    def place(row: int) -> str:
        return f"{where}:{lines[row][0]}"

    columns: dict[str, list] = {name: [] for name in fields}
    appended = [(columns[name].append, field) for name, field in fields.items()]
    row = 0
    try:
        for row, (_, line) in enumerate(lines):  # noqa: B007
            found = parse(line)
            for append, field in appended:
                append(found[field])
    except ValueError as error:
        raise DataError(f"{place(row)}: expected one object a line: {_words(error)}") from None
    except KeyError:
        raise DataError(f"{place(row)}: no {field!r}{printable(nearest(field, map(str, found)))}") from None
    except (TypeError, IndexError):
        raise DataError(f"{place(row)}: expected an object, {{...}}, found a {type(found).__name__}") from None
    result = {"user": _texts("user", columns, IDS, place), "item": _texts("item", columns, IDS, place)}
    if "value" in columns:
        result["value"] = numbers(_texts("value", columns, NUMBERS, place), place)
    if "time" in columns:
        result["time"] = seconds(_texts("time", columns, TIMES, place), place)
    return checked(pa.table(result), place)


def _texts(name: str, columns: dict[str, list], allowed: tuple[type, ...], place: Callable[[int], str]) -> pa.ChunkedArray:
    """The column as strings, whatever mix of text and numbers it is; None stays missing."""
    values = columns[name]
    kinds = set(map(type, values))
    if not kinds <= set(allowed):
        row = next(row for row, value in enumerate(values) if type(value) not in allowed)
        expected = "text or a number" if allowed is not IDS else "text or a whole number"
        raise DataError(f"{place(row)}: {name} is {printable(repr(values[row]))[:80]}; expected {expected}")
    try:
        texts = values if kinds <= {str, type(None)} else [value if value is None else str(value) for value in values]
        return pa.chunked_array([pa.array(texts, pa.string())])
    except UnicodeEncodeError as error:
        row = next(row for row, text in enumerate(texts) if text == error.object)
        raise DataError(f"{place(row)}: {name} is {printable(repr(texts[row]))[:80]}; half a character is no text") from None


def _words(error: ValueError) -> str:
    return f"{error.msg} at byte {error.pos + 1}" if isinstance(error, orjson.JSONDecodeError) else printable(str(error))
