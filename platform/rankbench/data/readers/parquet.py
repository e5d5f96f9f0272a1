"""Parquet with one interaction a row; the form of every dataset in a mirror."""

from __future__ import annotations

from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.data.cards import Read
from rankbench.data.interactions import checked
from rankbench.errors import DataError, printable
from rankbench.registry import nearest

MIRROR = Read(format="parquet", user="user", item="item", value="rating", time="timestamp")


def read(file: IO[bytes], spec: Read, where: str) -> pa.Table:
    """Columns user, item and, where present, value, time. Raises DataError for a damaged file or a missing column."""
    try:
        source = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where}: not a Parquet file: {printable(str(error).splitlines()[0])}") from None
    present = source.schema_arrow.names
    names = {}
    for name in ("user", "item", "value", "time"):
        column = getattr(spec, name)
        # The mirror's reading asks for every column it may have; a card's asks for what the card names.
        if column is None or (spec is MIRROR and name in ("value", "time") and column not in present):
            continue
        if column not in present:
            raise DataError(f"{where}: no column {column!r}{printable(nearest(str(column), present))}")
        if present.count(column) > 1:
            raise DataError(f"{where}: {present.count(column)} columns are called {column!r}")
        names[name] = str(column)
    try:
        table = source.read(columns=list(dict.fromkeys(names.values())))
        result = {name: table[column] for name, column in names.items()}
        for name in ("user", "item"):
            result[name] = _ids(result[name])
        if "value" in result:
            result["value"] = result["value"].cast(pa.float64())
        if "time" in result:
            result["time"] = result["time"].cast(pa.int64())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where}: {printable(str(error).splitlines()[0])}") from None
    return checked(pa.table(result), lambda row: f"{where}: row {row + 1}")


def _ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """int64 or string. Whole numbers may come as floats, as where a missing one was filled in; a fraction is no id."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(pa.int64() if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.string())
