"""One file per format; a reader is its function `read(raw: RawFile)`, which yields tables of interactions in file order.

A table has the columns user and item (each int64 or string) and, if the card names them, value (float64) and time (int64
seconds). A reader holds a bounded part of the file at a time, and its DataError names the file and line.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pyarrow as pa

FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reader(format: str) -> Callable[..., Iterator[pa.Table]]:
    """The `read` function of the format, one of FORMATS."""
    return importlib.import_module(f"{__name__}.{format.replace('-', '_')}").read
