"""Whatever the bytes of a raw file are, a reader yields interactions or one line that names the file."""

import gzip
import io
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.data.cards import Read
from rankbench.data.columns import checked
from rankbench.data.raw import RawFile
from rankbench.data.readers import FORMATS, reader
from rankbench.errors import DataError

PAIRS = [(user, item) for user in range(9) for item in range(7) if (user + item) % 3]
USERS, ITEMS = [user for user, _ in PAIRS], [item for _, item in PAIRS]


def parquet(**columns) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/raw", content)
    return buffer.getvalue()


def tarred(content: bytes, mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        entry = tarfile.TarInfo("folder/raw")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


CSV = "".join(f"{user},{item},4.5,2005-09-06\n" for user, item in PAIRS).encode()
NAMED = b"user,item,value,time\n" + CSV
ROWS = {"format": "delimited", "value": "value", "time": "time"}
AT = {"header": False, "user": 0, "item": 1, "value": 2, "time": 3}
JSON = "".join(f'{{"user": "u{user}", "item": {item}, "value": 4.5, "time": 9}}\n' for user, item in PAIRS).encode()
LITERALS = "".join(f"{{u'user': u'u{user}', u'item': u'\\u00e9{item}'}}\n" for user, item in PAIRS).encode()
NETFLIX = b"7:\n" + b"".join(b"%d,%d,2005-09-06\n" % pair for pair in PAIRS)

# Name → what is read so, whole; how; the file's name, and the member of an archive.
VALID = {
    "csv": (NAMED, ROWS, "raw.csv", None),
    "quoted": (NAMED.replace(b",4.5,", b',"4.5",'), ROWS, "raw.csv", None),
    "::": (CSV.replace(b",", b"::"), ROWS | AT | {"separator": "::"}, "raw.dat", None),
    "user-lines": (b"0 1 2 3\n1 4 5\n2\n3 1\n", {"format": "user-lines"}, "raw.txt", None),
    "json": (JSON, ROWS | {"format": "json-lines"}, "raw.json", None),
    "literals": (LITERALS, {"format": "json-lines"}, "raw.json", None),
    "netflix": (NETFLIX, ROWS | {"format": "netflix-prize"}, "raw.txt", None),
    "netflix-tar": (tarred(NETFLIX, "w:"), {"format": "netflix-prize"}, "raw.tar", None),
    "parquet": (parquet(user=USERS, item=ITEMS, value=ITEMS), {"format": "parquet", "value": "value"}, "raw.parquet", None),
    "parquet-text": (parquet(user=[f"é{u}" for u in USERS], item=ITEMS), {"format": "parquet"}, "raw.parquet", None),
    "gz": (gzip.compress(NAMED), ROWS, "raw.csv.gz", None),
    "zip": (zipped(NAMED), ROWS, "raw.zip", "folder/raw"),
    "tar": (tarred(NAMED, "w:"), ROWS, "raw.tar", "folder/raw"),
    "tar-gz": (tarred(NAMED, "w:gz"), ROWS, "raw.tar.gz", "folder/raw"),
    "tar-xz": (tarred(NAMED, "w:xz"), ROWS, "raw.tar.xz", "folder/raw"),
    "tar-bz2": (tarred(NAMED, "w:bz2"), ROWS, "raw.tar.bz2", "folder/raw"),
}
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
    raw = RawFile("all", path, "", raw.spec, "file", member, {"linktarget": raw, "page": raw, "redirect": raw})
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


@st.composite
def harmed(draw, content: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        at, beyond = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
        part = content[at:beyond]
        by = draw(
            st.sampled_from([b"", b"\x00", b"\xef\xbb\xbf", b"\xff", b'"', b"\n", b"\r", b"{", b"-", part[::-1], 3 * part])
        )
        # A part that is long is most often all that matters.
        beyond = draw(st.sampled_from([beyond, min(at + 1, beyond), len(content)]))
        content = content[:at] + by + content[beyond:]
    return content


@EVERY
def test_the_whole_files_are_read(name, folder):
    """What the tests below harm is whole to begin with."""
    assert outcome(folder, *VALID[name]) == {"user-lines": 6}.get(name, len(PAIRS))


@EVERY
@given(data=st.data())
def test_a_harmed_file_is_read_or_refused(name, data, folder):
    content, *how = VALID[name]
    outcome(folder, data.draw(harmed(content)), *how)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("name", "member"), [("raw", None), ("raw.gz", None), ("raw.zip", "x"), ("raw.tar", "x.gz")])
@given(content=st.binary(max_size=2000) | st.text("0123456789,:;-\n\r{}[]\"' .eN", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(format, name, member, content, folder):
    outcome(folder, content, {"format": format}, name, member)
