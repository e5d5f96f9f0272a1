"""The files of a saved model. What they would take is known from their headers, before memory is taken for them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from safetensors import SafetensorError, safe_open

from rankbench.core.errors import DataError, first_line, shown
from rankbench.core.memory import available_memory

MOST_HEADER = 1 << 16  # bytes; a model has about ten arrays
_WHOLE, _REAL = {"I32": 4, "I64": 8}, {"F32": 4, "F64": 8}  # bytes of a number of a type of safetensors


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array in the safetensors file of a model; only its header is read.

    Raises DataError if the file is missing or damaged, has numbers of another type, or needs more memory than is free.
    """
    if not path.is_file():  # reading a pipe would never end
        raise DataError(f"{path}: not a saved model (no such file)")
    try:
        with path.open("rb") as file:
            if int.from_bytes(file.read(8), "little") > MOST_HEADER:
                raise DataError(f"{path}: not the arrays of a model (its header has more than {MOST_HEADER >> 10} kB)")
        with safe_open(path, "np") as arrays:
            found = {name: arrays.get_slice(name) for name in arrays.keys()}  # noqa: SIM118
            types = {name: each.get_dtype() for name, each in found.items()}
            shapes = {name: tuple(each.get_shape()) for name, each in found.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path}: not the arrays of a model ({first_line(error)}); fit the model again") from None
    needed = 0
    for name, shape in shapes.items():
        known = _WHOLE if name.startswith("history.") or name == "model.widths" else _REAL
        if types[name] not in known:
            raise DataError(f"{path}: {shown(name)} has numbers of the type {types[name]}, expected {' or '.join(known)}")
        needed += prod(shape) * known[types[name]]
    if needed > (free := available_memory()):
        raise DataError(f"{path}: its arrays take {needed / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free")
    return shapes


def most_values(shapes: dict[str, tuple[int, ...]]) -> int:
    """Return how many values the description of a model with these arrays may have: its ids, and room for parameters."""
    return 10_000 + sum(max(shape, default=0) for name, shape in shapes.items() if name != "history.indices")


def vocabulary(ids: list[Any], source: str) -> pa.Array:
    """Return the raw ids of a saved model. Raises DataError, starting with `source`, unless they are whole numbers of 64 bits
    or texts, and each is there once.
    """
    try:
        array = pa.array(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{source}: expected whole numbers or texts ({first_line(error)})") from None
    if array.type not in (pa.int64(), pa.string()) or array.null_count:
        raise DataError(f"{source}: expected whole numbers or texts, got {array.type}{' with gaps' * bool(array.null_count)}")
    in_order = array.take(pc.sort_indices(array))  # a table of distinct values would take twenty times its memory
    if len(twice := in_order[1:].filter(pc.equal(in_order[1:], in_order[:-1]))):
        raise DataError(f"{source}: the id {shown(twice[0].as_py())} is given twice")
    return array
