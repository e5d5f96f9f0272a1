"""A reader holds a part of its file: the peak is far below the size of what it reads."""

import gzip
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from peak import peak

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader

# Format → a line of text, how it is read, and its interactions. Long lines: rows take memory of their own.
WORDS = "words " * 200
LINES = {
    "delimited": (f"123::4567::{WORDS}\n", {"separator": "::", "header": False, "user": 0, "item": 1}, 1),
    "json-lines": (f'{{"user": "123", "item": "4567", "text": "{WORDS}"}}\n', {}, 1),
    "netflix-prize": ("7:\n" + 99 * "1234567890,5,2005-09-06\n", {}, 99),
    "user-lines": ("123 4567" + 2000 * " " + "\n", {}, 1),
}


def measure(raw: RawFile) -> tuple[int, int]:
    """Rows, and the most bytes that were held."""
    with peak() as taken:
        n_rows = sum(map(len, reader(raw.spec.format)(raw)))
    return n_rows, taken[0]


@pytest.mark.parametrize("format", LINES)
def test_the_peak_is_a_part_of_the_text(format, tmp_path):
    line, read, rows = LINES[format]
    times = (1 << 20) // len(line)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(line.encode())
    large.write_bytes(line.encode() * times * 100)
    spec = Read(format=format, **read)
    list(reader(format)(RawFile("all", small, "", spec, "file")))  # what is compiled at the first use is not held
    n_rows, peak = measure(RawFile("all", large, "", spec, "file"))
    assert n_rows == 100 * times * rows
    assert peak < large.stat().st_size / 1.5  # not closer: Arrow parses in threads, so that its part differs from run to run


def test_the_peak_is_a_part_of_one_row_group(tmp_path):
    n_rows = 12_000_000
    random = np.random.default_rng(0)
    path = tmp_path / "raw.parquet"
    columns = {name: random.integers(0, 2**62, n_rows) for name in ("user", "item")}
    pq.write_table(pa.table(columns), path, row_group_size=n_rows, use_dictionary=False, compression="none")
    del columns
    assert path.stat().st_size > 180 << 20
    found, peak = measure(RawFile("all", path, "", Read(format="parquet"), "file"))
    assert found == n_rows
    assert peak < 90 << 20


@pytest.mark.parametrize("format", sorted(LINES))
def test_a_line_of_a_gigabyte_is_not_held(format, tmp_path):
    line, read, _ = LINES[format]
    path = tmp_path / "raw.gz"
    path.write_bytes(gzip.compress(line.encode()) + 64 * gzip.compress(b"1" * (16 << 20)))
    raw = RawFile("all", path, "", Read(format=format, **read), "file")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="the line is longer than 8 MB"):
            list(reader(format)(raw))
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()
