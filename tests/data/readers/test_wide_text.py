"""Long text in a Parquet file: one value that all rows repeat, or that rows differ from in a few bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from peak import peak

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.raw import RawFile
from rankbench.data.readers import parquet, reader
from rankbench.data.readers.parquet import NO_DICTIONARY

TEXTS = ["u7", "é", "", None, "u7", "x" * 1000] * 50


def raw_of(folder, user: pa.Array, **how) -> RawFile:
    path = folder / "raw.parquet"
    pq.write_table(pa.table({"user": user, "item": np.zeros(len(user), np.int64)}), path, **{"compression": "zstd"} | how)
    return RawFile("all", path, "", Read(format="parquet"), "file", keep_missing=True)


def repeated(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [f"{text}00000"])


def counted(text: str, n: int) -> pa.Array:
    return pa.array([f"{text}{number:05d}" for number in range(n)])


def outcome(raw: RawFile) -> tuple[int, str, int]:
    """Rows, the words of the refusal, and the most bytes that were held."""
    n_rows, said = 0, ""
    with peak() as taken:
        try:
            for table in reader(raw.spec.format)(raw):
                assert table.nbytes < 36 << 20
                n_rows += len(table)
        except DataError as error:
            said = str(error)
    return n_rows, said, taken[0]


# Each is 70 MB once it is decoded, and only then.
@pytest.mark.parametrize(
    ("user", "how", "message"),
    [
        (repeated, {"store_schema": False}, "row 1: user is a text of 9,999 bytes; at most 1,000 are read"),
        (repeated, {}, "row 1: user is a text of 9,999 bytes; at most 1,000 are read"),
        (
            *(counted, {"use_dictionary": False, "column_encoding": {"user": "DELTA_BYTE_ARRAY", "item": "PLAIN"}}),
            "row 1: user is a text of 9,999 bytes; at most 1,000 are read",
        ),
        (
            *(counted, {"use_dictionary": False}),
            "unpacks to more than 64 MB, over 100 times its size; real datasets expand far less: "
            "write it without compression if you trust it",
        ),
    ],
    ids=["dictionary", "dictionary in the schema", "differences", "plain"],
)
def test_a_long_text_is_refused_before_it_is_repeated(user, how, message, tmp_path):
    raw = raw_of(tmp_path, user("x" * 9994, 7000), **how)
    assert raw.path.stat().st_size < 100_000
    _, said, n_bytes = outcome(raw)
    assert said == f"{raw.path}: {message}"
    assert n_bytes < 40 << 20


def test_a_long_text_that_no_row_has_is_not_refused(tmp_path):
    user = pa.DictionaryArray.from_arrays(np.zeros(4, np.int32), ["u", "x" * 5000])
    assert outcome(raw_of(tmp_path, user))[:2] == (4, "")


def test_the_row_of_a_long_text_counts_from_the_start_of_the_file(tmp_path):
    user = pa.DictionaryArray.from_arrays(np.repeat(np.int32([0, 1]), [200_000, 1]), ["a" * 900, "é" * 501])
    raw = raw_of(tmp_path, user, store_schema=False)
    assert outcome(raw)[1] == f"{raw.path}: row 200001: user is a text of 1,002 bytes; at most 1,000 are read"


def test_ids_of_900_bytes_are_read_in_parts(tmp_path):
    n_rows, said, n_bytes = outcome(raw_of(tmp_path, repeated("x" * 895, 400_000), store_schema=False))
    assert (n_rows, said) == (400_000, "")
    assert n_bytes < 150 << 20  # of 360 MB


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", None])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_text_however_it_is_stored(encoding, kind, tmp_path):
    how = {} if encoding is None else {"use_dictionary": False, "column_encoding": {"user": encoding, "item": "PLAIN"}}
    user = pa.array(TEXTS, pa.string()).cast(kind)
    raw = raw_of(tmp_path, user, **how, row_group_size=70)
    read = [user for table in reader("parquet")(raw) for user in table["user"].to_pylist()]
    assert read == [text or None for text in TEXTS]


def test_rows_that_were_read_before_text_becomes_differences_are_not_read_twice(tmp_path, monkeypatch):
    """As in a file whose writer gave its dictionary up."""

    class UntilThen:
        def __init__(self, file: pq.ParquetFile):
            self.schema_arrow, self._file = file.schema_arrow, file

        def iter_batches(self, *args, **kwargs):
            yield next(self._file.iter_batches(1500, columns=kwargs["columns"]))
            raise OSError(f"{NO_DICTIONARY} for SomeDecoder.")

    whole = parquet.opened
    monkeypatch.setattr(
        parquet, "opened", lambda *args: UntilThen(whole(*args)) if args[2:] == (["user", "item"],) else whole(*args)
    )
    tables = list(reader("parquet")(raw_of(tmp_path, counted("u", 5000))))
    assert [len(table) for table in tables] == [1500, 548, 1024, 1024, 904]
    assert pa.concat_tables(tables)["user"].combine_chunks() == counted("u", 5000)
