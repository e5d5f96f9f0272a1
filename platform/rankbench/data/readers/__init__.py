"""One file a format; a reader is its function `read(raw: RawFile)`, which yields tables of interactions in file order.

A table has the columns user and item (both int64 or both string) and, where the card names them, value (float64) and time
(int64 seconds); a reader holds a bounded part of the file at a time, and raises DataError naming file and line.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pyarrow as pa

FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The `read` of the format's file; `format` is one of FORMATS."""
    return importlib.import_module(f"{__name__}.{format.replace('-', '_')}").read
