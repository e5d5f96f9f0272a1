"""One object per line: JSON, as in the Amazon reviews of 2014 and 2018, or Python literals, as in the Steam reviews of Kang
and McAuley: `{u'username': u'x', u'product_id': u'10', u'date': u'2018-02-14'}`. The first line decides which.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa

from rankbench.core.errors import DataError, printable, shown
from rankbench.core.registry import nearest
from rankbench.data.columns import ADVICE, MISSING_BESIDE_NULL, interactions
from rankbench.data.raw import NOT_UTF8, RawFile, blocks_of_lines
from rankbench.data.readers import reads

LONGEST_LITERAL = 1 << 20  # bytes; the most that is passed to Python's parser

# The allowed types of a field, compared exactly, because bool is a subclass of int.
ALLOWED: dict[str, tuple[type, ...]] = {
    "user": (str, int),
    "item": (str, int),
    "value": (int, float, str),
    "time": (int, float, str, type(None)),
}


@reads("json-lines")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (string) and, if the card names them, value (float64), time (perhaps null).

    Raises DataError naming the line that is not an object, lacks a field, or has one of the wrong type.
    """
    source = str(raw.path)
    fields = {name: str(field) for name, field in raw.spec.columns({"user": "user", "item": "item"}).items()}
    with raw.open() as file:
        parse = None
        for first, block in blocks_of_lines(file, source, raw.spec.encoding):
            lines = [(number, line) for number, line in enumerate(block.split(b"\n"), start=first) if line.strip()]
            if not lines:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's parser warns of a stray backslash in a review
                parse = parse or _language(lines[0][1])
                table = _table(lines, parse, fields, source, raw.keep_missing)
            yield table


def _language(line: bytes) -> Callable[[bytes], Any]:
    """The parser for `line`: of Python literals if it is a dict literal and not JSON, otherwise of JSON."""
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
    """The value of the Python literal `line`; names and calls are never evaluated. Raises ValueError."""
    if len(line) > LONGEST_LITERAL:
        raise ValueError(f"longer than {LONGEST_LITERAL >> 20} MB")
    if b"\0" in line:  # its error differs between versions of Python
        raise ValueError("a null byte")
    try:
        return ast.literal_eval(line.strip().decode())
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8) from None
    except SyntaxError as error:
        raise ValueError(error.msg) from None
    except (ValueError, TypeError, RecursionError, MemoryError):  # nested too deep, unhashable, or an expression
        raise ValueError("not a plain value") from None


def _table(
    lines: list[tuple[int, bytes]], parse: Callable, fields: dict[str, str], source: str, keep_missing: bool
) -> pa.Table:
    def locate(row: int) -> str:
        return f"{source}:{lines[row][0]}"

    columns: dict[str, list] = {name: [] for name in fields}
    appended = [(columns[name].append, field) for name, field in fields.items()]
    row = 0
    try:
        for row, (_, line) in enumerate(lines):  # noqa: B007
            content = parse(line)
            for append, field in appended:
                append(content.get(field) if keep_missing else content[field])
    except ValueError as error:
        raise DataError(f"{locate(row)}: expected one object per line: {_message(error)}") from None
    except KeyError:
        hint = printable(nearest(field, map(str, content))) or ADVICE
        raise DataError(f"{locate(row)}: no {field!r}{hint}") from None
    except (TypeError, IndexError, AttributeError):
        raise DataError(f"{locate(row)}: expected an object, {{...}}, found {printable(shown(content))}") from None
    texts = {name: _texts(name, values, keep_missing, locate) for name, values in columns.items()}
    return interactions(texts, locate, keep_missing, MISSING_BESIDE_NULL)


def _texts(name: str, values: list, keep_missing: bool, locate: Callable[[int], str]) -> pa.ChunkedArray:
    """The column as strings, from any mix of text and numbers; None stays missing."""
    kinds, allowed = set(map(type, values)), ALLOWED[name]
    if keep_missing:
        allowed = (*allowed, type(None))
    if not kinds <= set(allowed):
        row = next(row for row, value in enumerate(values) if type(value) not in allowed)
        expected = "text or a number" if name in ("value", "time") else "text or a whole number"
        advice = ADVICE if values[row] is None else ""
        raise DataError(f"{locate(row)}: {name} is {printable(repr(values[row]))[:80]}; expected {expected}{advice}")
    try:
        texts = values if kinds <= {str, type(None)} else [value if value is None else str(value) for value in values]
        return pa.chunked_array([pa.array(texts, pa.string())])
    except UnicodeEncodeError as error:
        row = next(row for row, text in enumerate(texts) if text == error.object)
        raise DataError(f"{locate(row)}: {name} is {printable(repr(texts[row]))[:80]}; half a character is not text") from None


def _message(error: ValueError) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return NOT_UTF8 if "UTF-8" in error.msg else f"{error.msg} at byte {error.pos + 1}"
    return printable(str(error))
