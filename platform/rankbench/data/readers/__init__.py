"""One file per format; a reader is a function of a `RawFile`, decorated by `reads`, which yields tables in file order.

A table has the columns user and item (each int64 or string) and, if the card names them, value (float64) and time (int64
seconds). A reader holds a bounded part of the file at a time, and its DataError names the file and line.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from rankbench.core.errors import DataError
from rankbench.core.plugins import load_configured
from rankbench.core.registry import Registry
from rankbench.data.layouts import Finder, Layout

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reader:
    """`read(raw)` yields the tables of a raw file. `find(names, source)`, for a format of whole folders or archives, returns
    the `Layout` of the files of these names; it is None for a format of single files. `example`: a small file of the format,
    and `options`, the keys of a card's `read` that it takes; `rankbench check` reads and damages it.
    """

    read: Callable[..., Iterator[pa.Table]]
    example: bytes = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    find: Finder | None = None


READERS: Registry[Reader] = Registry("reader")
FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reads(format: str, **about: Any) -> Callable[[F], F]:
    """Register the decorated function as the reader of `format`. In this folder, the file of a format has its name. `about`
    holds further fields of `Reader`.
    """
    return READERS.decorator(format, lambda function: Reader(function, **about))


def formats() -> list[str]:
    """The formats of this folder and those of plugins."""
    load_configured()
    return sorted({*FORMATS, *READERS.names()})


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The function that reads a file of the format. Raises ConfigError for an unknown one."""
    return _registered(format).read


def finder(format: str) -> Finder | None:
    """The function that finds the files of the format in a folder or archive; None for a format of single files."""
    return _registered(format).find


def layout_of(format: str, names: list[str], source: str) -> Layout:
    """The layout of the files `names` in the folder or archive `source`. Raises DataError if the format finds none."""
    find = finder(format)
    if find is None:
        raise DataError(
            f"{source}: the format {format} reads files; name them in the card: source.file, or source.files by part"
        )
    return find(names, source)


def _registered(format: str) -> Reader:
    load_configured()
    if format in FORMATS:
        importlib.import_module(f"{__name__}.{format.replace('-', '_')}")
    return READERS.get(format)
