"""A raw file as a card describes it, without a card."""

from pathlib import Path

import pyarrow as pa
import pytest

from rankbench.data.cards import Read
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader


@pytest.fixture(scope="session")
def rows_of(tmp_path_factory):
    """rows_of(content, spec, name, member) → a tuple a row, in the order user, item, value, time."""
    folder = tmp_path_factory.mktemp("raw")

    def rows_of(content: str | bytes, spec: Read, name: str = "raw.dat", member: str | None = None) -> list[tuple]:
        path: Path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        tables = list(reader(spec.format)(RawFile("all", path, "", spec, "file", member)))
        if not tables:
            return []
        table = pa.concat_tables(tables)
        names = [name for name in ("user", "item", "value", "time") if name in table.column_names]
        return list(zip(*(table[name].to_pylist() for name in names), strict=True))

    return rows_of
