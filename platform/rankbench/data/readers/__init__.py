"""One file per format; a reader is its function `read(raw: RawFile)`, which yields tables of interactions in file order.

A format of whole folders or archives also has `find(names, source)`, which returns the `Layout` of the files of these names.

A table has the columns user and item (each int64 or string) and, if the card names them, value (float64) and time (int64
seconds). A reader holds a bounded part of the file at a time, and its DataError names the file and line.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa

from rankbench.core.errors import DataError
from rankbench.data.layouts import Finder, Layout

FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The `read` function of the format, one of FORMATS."""
    return importlib.import_module(f"{__name__}.{format.replace('-', '_')}").read


def layout_of(format: str, names: list[str], source: str) -> Layout:
    """The layout of the files `names` in the folder or archive `source`. Raises DataError if the format finds none."""
    find = finder(format)
    if find is None:
        raise DataError(
            f"{source}: the format {format} reads files; name them in the card: source.file, or source.files by part"
        )
    return find(names, source)


def finder(format: str) -> Finder | None:
    """The `find` function of the format, or None if it reads single files only."""
    return getattr(sys.modules[reader(format).__module__], "find", None)
