"""One file a format; a reader is its function `read(file, spec, where) -> pa.Table`."""

import importlib
import pkgutil
from collections.abc import Callable

import pyarrow as pa

FORMATS = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def reader(format: str) -> Callable[..., pa.Table]:
    """The `read` of the format's file; `format` is one of FORMATS."""
    return importlib.import_module(f"{__name__}.{format.replace('-', '_')}").read
