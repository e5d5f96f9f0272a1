"""Published archives in their true layout, and archives that are damaged or mean harm."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile

import pytest
from packed import tarred, zipped

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.raw import RawFile

ML = Read(separator="::", header=False, user=0, item=1, value=2, time=3)
ROWS = [("1", "1193", 5.0, 978300760), ("1", "661", 3.0, 978302109)]
DAT = "1::1193::5::978300760\n1::661::3::978302109\n"
TRIPLETS = Read(separator="\t", header=False, user=0, item=1, value=2)
SONGS = (
    "b80344d063b5ccb3212f76538f3d9e43d87dca9e\tSOAKIMP12A8C130995\t1\n85c1f87fea955d09b4bec2e36aee110927aedf9a\tSOAPDEY\t12\n"
)


@pytest.mark.parametrize("kept", [1024, 1124])
def test_the_names_of_a_tar_that_ends_too_early_are_refused(tmp_path, kept):
    path = tmp_path / "two.tar"
    path.write_bytes(tarred({"train.csv": b"1,2", "test.csv": b"1,3"}, "w:")[:kept])
    with pytest.raises(DataError, match=r"two\.tar: damaged"):
        RawFile("all", path, "", Read(), "file").names()


@pytest.mark.parametrize(
    ("name", "member", "text", "spec", "rows"),
    [
        ("ml-1m.zip", "ml-1m/ratings.dat", DAT, ML, ROWS),
        (
            *("train_triplets.txt.zip", "train_triplets.txt", SONGS, TRIPLETS),
            [
                ("b80344d063b5ccb3212f76538f3d9e43d87dca9e", "SOAKIMP12A8C130995", 1.0),
                ("85c1f87fea955d09b4bec2e36aee110927aedf9a", "SOAPDEY", 12.0),
            ],
        ),
    ],
    ids=lambda value: value if str(value).endswith(".zip") else "",
)
def test_a_published_zip_is_read_in_its_own_layout(name, member, text, spec, rows, rows_of):
    folder = member.rpartition("/")[0]
    others = {f"{folder}/": "", f"{folder}/README": "not this", f"__MACOSX/{member}": "nor this"} if folder else {}
    assert rows_of(zipped(others | {member: text}), spec, name, member) == rows


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_however_packed(mode, rows_of):
    files = {"./a/README": b"not this", "./a/ratings.dat": DAT.encode(), "./a/b.gz": gzip.compress(DAT.encode())}
    assert rows_of(tarred(files, mode), ML, "raw.tar", "a/ratings.dat") == ROWS
    assert rows_of(tarred(files, mode), ML, "raw.tar", "a/b.gz") == ROWS


ZIP = zipped({"a/ratings.dat": DAT * 1000})
# The first bit of the flags, in the member's own header and in the list of them at the end.
ENCRYPTED = ZIP.replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01")
ENCRYPTED = ENCRYPTED.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")
TAR = tarred({"a/ratings.dat": DAT.encode() * 1000}, "w:gz")
GZ = gzip.compress(DAT.encode() * 1000, mtime=0)
# What is packed one after the other is unpacked so.
GIGABYTE_OF_EMPTY_LINES = 64 * gzip.compress((16 << 20) * b"\n", mtime=0)


@pytest.mark.parametrize(
    ("content", "name", "member", "message"),
    [
        (ZIP[:-30], "raw.zip", "a/ratings.dat", "damaged, or not the archive"),
        (ZIP, "raw.zip", "a/rating.dat", "holds no a/rating.dat"),
        (ZIP, "raw.zip", "../a/ratings.dat", "holds no ../a/ratings.dat"),
        (ZIP.replace(b"\x00\x08\x00", b"\x00\x63\x00"), "raw.zip", "a/ratings.dat", "compression"),
        (ENCRYPTED, "raw.zip", "a/ratings.dat", "encrypted"),
        (ZIP[:60] + b"\xff" * 10 + ZIP[70:], "raw.zip", "a/ratings.dat", "damaged|differs"),
        (TAR[: len(TAR) // 2], "raw.tar.gz", "a/ratings.dat", "damaged, or not the archive"),
        (TAR, "raw.tar.gz", "a", "holds no a"),
        (DAT.encode(), "raw.zip", "a/ratings.dat", "damaged, or not the archive"),
        (GZ[: len(GZ) // 2], "raw.dat.gz", None, "damaged, or not the archive"),
        (DAT.encode(), "raw.dat.gz", None, "Not a gzipped file"),
        (b"", "raw.zip", "a", "damaged, or not the archive"),
        (b"", "raw.dat.gz", None, "no interactions"),
        (GIGABYTE_OF_EMPTY_LINES, "raw.dat.gz", None, "unpacks to more than .. MB, over 100 times its size"),
    ],
)  # fmt: skip
def test_a_damaged_archive_is_refused_by_name(content, name, member, message, rows_of):
    with pytest.raises(DataError, match=message) as error:
        if not rows_of(content, ML, name, member):
            raise DataError(f"/{name}: no interactions")  # as preparation says it
    assert f"/{name}:" in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(("packed", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")])
def test_a_zip_that_cannot_be_unpacked_bit_by_bit_is_refused(packed, name, rows_of):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packed) as archive:
        archive.writestr("a.dat", DAT)
    with pytest.raises(DataError, match=rf"raw\.zip: a\.dat has the compression {name}; only deflate is read: unpack it"):
        rows_of(buffer.getvalue(), ML, "raw.zip", "a.dat")


def header(kind: bytes, size: int, name: str = "other") -> bytes:
    """The first 512 bytes of an entry of a tar."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def blocks(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def attribute(key: str, value: str) -> bytes:
    """A line of a pax header, which begins with its own length: of two digits."""
    line = f" {key}={value}\n"
    return f"{len(line) + 2}{line}".encode()


LAST = header(tarfile.REGTYPE, len(DAT), "ratings.dat") + blocks(DAT.encode()) + bytes(1024)
LARGE = 24 << 20


@pytest.mark.parametrize(
    ("kind", "pack"),
    [
        *((kind, lambda content: gzip.compress(content, 1)) for kind in b"LxX"),
        *((ord("L"), pack) for pack in (bz2.compress, lambda content: lzma.compress(content, preset=0))),
    ],
    ids=["L", "x", "X", "bz2", "xz"],
)
def test_a_name_or_attributes_of_24_mb_are_not_held(kind, pack, tmp_path):
    path = tmp_path / "raw.tar.packed"
    path.write_bytes(pack(header(bytes([kind]), LARGE) + bytes(LARGE) + LAST))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"raw\.tar\.packed: the archive .* a file in 25,165,824 bytes") as error:
            RawFile("all", path, "", ML, "file").names()
        assert str(error.value).endswith("at most 16,384 are read; unpack it yourself if you trust it")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


HOLES = header(tarfile.GNUTYPE_SPARSE, 0)
MAP = b"".join(attribute(f"GNU.sparse.{key}", value) for key, value in [("major", "1"), ("minor", "0"), ("realsize", "9")])


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (1000 * (header(b"L", 5) + blocks(b"name\0")), "describes one file by hundreds of headers"),
        (HOLES, "has a sparse file"),
        (header(b"x", len(MAP)) + blocks(MAP) + header(b"0", 0), "has a sparse file"),
        (header(b"x", 23) + blocks(attribute("GNU.sparse.map", "0,0")) + header(b"0", 0), "has a sparse file"),
        (header(b"x", 24) + blocks(attribute("GNU.sparse.size", "1?")) + header(b"0", 0), "has a sparse file"),
        (header(b"0", 8**11 - 1), "unpacks to more than 64 MB, far more than a dataset of its size"),
    ],
    ids=["chain", "sparse", "sparse 1.0", "sparse 0.1", "sparse 0.0", "size"],
)
def test_what_no_dataset_has_is_refused(before, message, rows_of):
    with pytest.raises(DataError, match=rf"raw\.tar: the archive {message}; unpack it yourself if you trust it"):
        rows_of(before + LAST, ML, "raw.tar", "ratings.dat")


def test_attributes_of_all_files_do_not_add_up_without_end(rows_of):
    lines = [b"".join(attribute(f"key{n}{key:03}", "v") for key in range(600)) for n in range(2)]
    parts = [header(b"g", len(each)) + blocks(each) + header(b"0", 0) for each in lines]
    assert rows_of(parts[0] + LAST, ML, "raw.tar", "ratings.dat") == ROWS
    with pytest.raises(DataError, match="the archive describes all its files by more than 1,000 attributes"):
        rows_of(b"".join(parts) + LAST, ML, "raw.tar", "ratings.dat")


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_attributes_are_read(format, rows_of):
    name, buffer = "folder/" * 500 + "ratings.dat", io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=format, pax_headers={"comment": "of all files"}) as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.pax_headers = len(DAT), {"SCHILY.xattr.user.note": "note " * 800}
        archive.addfile(entry, io.BytesIO(DAT.encode()))
    assert rows_of(buffer.getvalue(), ML, "raw.tar.gz", name) == ROWS


def test_what_a_tar_unpacks_before_the_member_counts(rows_of):
    """The tar is 30 MB of zeros, thrice, then the ratings; packed it is a thousandth."""
    files = {f"zeros{n}": bytes(30 << 20) for n in range(3)} | {"ratings.dat": DAT.encode()}
    with pytest.raises(DataError, match="unpacks to more than 64 MB"):
        rows_of(tarred(files, "w:gz"), ML, "raw.tar.gz", "ratings.dat")


def test_parquet_does_not_come_in_an_archive(rows_of):
    with pytest.raises(DataError, match=r"raw\.zip: Parquet is not read out of an archive; unpack it first"):
        rows_of(ZIP, Read(format="parquet"), "raw.zip", "a/ratings.dat")
