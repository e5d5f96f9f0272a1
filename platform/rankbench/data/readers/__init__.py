"""One file per format; a reader is a function of a `RawFile`, decorated by `reads`, which yields tables in file order.

A table has the columns user and item (each int64 or string) and, if the card names them, value (float64) and time (int64
seconds). A reader holds a bounded part of the file at a time, and its DataError names the file and line.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from rankbench.core.plugins import load_configured
from rankbench.core.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
READERS: Registry[Callable[..., Iterator[pa.Table]]] = Registry("reader")
FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reads(format: str) -> Callable[[F], F]:
    """Register the decorated function as the reader of `format`. In this folder, the file of a format has its name."""
    return READERS.decorator(format, lambda function: function)


def formats() -> list[str]:
    """The formats of this folder and those of plugins."""
    load_configured()
    return sorted({*FORMATS, *READERS.names()})


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The reader of a format. Raises ConfigError for an unknown one."""
    load_configured()
    if format in FORMATS:
        importlib.import_module(f"{__name__}.{format.replace('-', '_')}")
    return READERS.get(format)
