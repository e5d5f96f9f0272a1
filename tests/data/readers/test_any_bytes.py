"""Whatever the bytes of a raw file are, a reader yields interactions or one line that names the file."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_files import PAIRS, VALID, harmed

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.columns import checked
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader, readers

EVERY = pytest.mark.parametrize("name", VALID)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bytes")


def outcome(folder, content: bytes, read: dict, name: str, member: str | None) -> int | str:
    """How many interactions, all of them sound, or the words of the refusal."""
    path = folder / name
    path.write_bytes(content)
    raw = RawFile("all", path, "", Read(**read), "file", member)
    # The dumps of a wiki are several files; here they are all the same.
    raw = RawFile("all", path, "", raw.spec, "file", member, {"linktarget": raw, "page": raw})
    n_rows = 0
    try:
        for table in reader(raw.spec.format)(raw):
            assert table.column_names[:2] == ["user", "item"] and set(table.column_names[2:]) <= {"value", "time"}
            assert all(pa.types.is_int64(table[name].type) or pa.types.is_string(table[name].type) for name in ("user", "item"))
            table.validate(full=True)
            n_rows += len(checked(table, str))
    except DataError as error:
        assert str(error).startswith(f"{path}:") and str(error).isprintable()
        return str(error)
    return n_rows


@EVERY
def test_the_whole_files_are_read(name, folder):
    """What the tests below harm is whole to begin with."""
    assert outcome(folder, *VALID[name]) == {"user-lines": 6}.get(name, len(PAIRS))


@EVERY
@given(data=st.data())
def test_a_harmed_file_is_read_or_refused(name, data, folder):
    content, *how = VALID[name]
    outcome(folder, data.draw(harmed(content)), *how)


@pytest.mark.parametrize("format", readers().names())
@given(
    file=st.sampled_from([("raw", None), ("raw.gz", None), ("raw.zip", "x"), ("raw.tar", "x.gz")]),
    content=st.binary(max_size=2000) | st.text("0123456789,:;-\n\r{}[]\"' .eN", max_size=200).map(str.encode),
)
def test_any_bytes_are_read_or_refused(format, file, content, folder):
    outcome(folder, content, {"format": format}, *file)
