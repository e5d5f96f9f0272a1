"""One file per format; a reader is a function of a `RawFile`, decorated by `reads`, which yields tables in file order.

A table has the columns user and item (each int64 or string) and, if the card names them, value (float64) and time (int64
seconds, or timestamp[us] where times have fractions of a second). A reader holds a bounded part of the file at a time, and its
DataError names the file and line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

import pyarrow as pa

from rankbench.core.errors import ConfigError, DataError, shown
from rankbench.core.plugins import exits_are_errors
from rankbench.core.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
# The names that libraries give to a part.
PART_WORDS = {"train": "train", "training": "train", "test": "test"}
PART_WORDS |= dict.fromkeys(("valid", "val", "validation", "dev", "development", "tune"), "valid")

Finder = Callable[[list[str], str], dict[str, str]]


@dataclass(frozen=True)
class Reader:
    """`read(raw)` yields the tables of a raw file. `find(names, source)`, for a format of whole folders or archives, returns
    part → name, of the files of a dataset among these names; it is None for a format of single files. `example`: a small file
    of the format, and `options`, the keys of a card's `read` that it takes; `rankbench check` reads and damages it.
    """

    read: Callable[..., Iterator[pa.Table]]
    example: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    find: Finder | None = None


READERS: Registry[Reader] = Registry("reader")


def reads(format: str, **about: Any) -> Callable[[F], F]:
    """Register the decorated function as the reader of `format`. `about` holds further fields of `Reader`."""
    return READERS.decorator(format, lambda function: Reader(function, **about))


def readers() -> Registry[Reader]:
    """The registry, with every file of this folder imported."""
    return READERS.filled_from(__name__)


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The function that reads a file of the format. Raises ConfigError for an unknown one.

    The function raises ConfigError if the reader, which may be a plugin's, yields something else than such tables.
    """
    read = readers().get(format).read

    def tables(raw: Any) -> Iterator[pa.Table]:
        with exits_are_errors(f"reader {format}"):
            found = read(raw)
            for table in found if isinstance(found, Iterable) else (found,):
                if problem := problem_of(table, raw.keep_missing):
                    raise ConfigError(f"reader {format}: {problem}; rankbench check FILE tests it")
                yield table

    return tables


TYPES = {"value": pa.types.is_float64, "time": lambda kind: kind in (pa.int64(), pa.timestamp("us"))}


def problem_of(table: Any, keep_missing: bool = False) -> str:
    """What keeps something that a reader yielded from being a table of interactions; empty if nothing does. Only a time may be
    missing in a row, unless missing rows are kept.
    """
    if not isinstance(table, pa.Table):
        return f"yielded {shown(table)} instead of a pyarrow.Table"
    names = table.column_names
    if names[:2] != ["user", "item"] or not {*names[2:]} <= {*TYPES} or len({*names}) < len(names):
        return f"the columns are {', '.join(names)[:200]}; expected user, item and perhaps value, time"
    for column in names:
        kind = table[column].type
        if not (TYPES[column](kind) if column in TYPES else pa.types.is_int64(kind) or pa.types.is_string(kind)):
            return f"the column {column} is {str(kind)[:100]}"
        if table[column].null_count and column != "time" and not keep_missing:
            return f"the column {column} has empty rows"
    return ""


def finder(format: str) -> Finder | None:
    """The function that finds the files of the format in a folder or archive; None for a format of single files."""
    return readers().get(format).find


def parts_of(format: str, names: list[str], source: str) -> dict[str, str]:
    """part → name, of the files `names` in the folder or archive `source`. Raises DataError if the format finds none."""
    find = finder(format)
    if find is None:
        raise DataError(
            f"{source}: the format {format} reads files; name them in the card: source.file, or source.files by part"
        )
    return find(names, source)


def visible(names: Iterable[str]) -> list[str]:
    """`names` without those that archives of other systems add."""
    return [name for name in names if not name.startswith("__MACOSX/") and not PurePosixPath(name).name.startswith(".")]


def parts_by_word(names: Iterable[tuple[str, str]], source: str) -> dict[str, str]:
    """part → name, for `names` after the words that tell their parts, such as train or val; empty without train and test.

    Raises DataError if two names are the same part.
    """
    parts: dict[str, str] = {}
    for word, name in names:
        if (part := PART_WORDS.get(word.lower())) is None:
            continue
        if part in parts:
            raise DataError(f"{source}: both {parts[part]} and {name} are the {part} part; name the files in source.files")
        parts[part] = name
    return parts if {"train", "test"} <= set(parts) else {}
