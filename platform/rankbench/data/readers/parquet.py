"""Parquet with one interaction a row; the form of every dataset in a mirror."""

from __future__ import annotations

from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.data.cards import Read
from rankbench.errors import DataError
from rankbench.registry import nearest

MIRROR = Read(format="parquet", user="user", item="item", value="rating", time="timestamp")


def read(file: IO[bytes], spec: Read, where: str) -> pa.Table:
    """Columns user, item and, where present, value, time. Raises DataError for a damaged file or a missing column."""
    try:
        source = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: not a Parquet file: {str(error).splitlines()[0]}") from None
    present = source.schema_arrow.names
    names = {}
    for name in ("user", "item", "value", "time"):
        column = getattr(spec, name)
        # The mirror's reading asks for every column it may have; a card's asks for what the card names.
        if column is None or (spec is MIRROR and name in ("value", "time") and column not in present):
            continue
        if column not in present:
            raise DataError(f"{where}: no column {column!r}{nearest(str(column), present)}")
        names[name] = str(column)
    try:
        table = source.read(columns=list(dict.fromkeys(names.values())))
        result = {name: table[column] for name, column in names.items()}
        if "value" in result:
            result["value"] = result["value"].cast(pa.float64())
        if "time" in result:
            result["time"] = result["time"].cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{where}: {str(error).splitlines()[0]}") from None
    return pa.table(result)
