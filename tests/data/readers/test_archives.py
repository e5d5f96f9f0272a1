"""Published archives in their true layout, and archives that are damaged or mean harm."""

import gzip
import io
import tarfile
import zipfile

import pytest

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.raw import RawFile

ML = Read(separator="::", header=False, user=0, item=1, value=2, time=3)
ROWS = [("1", "1193", 5.0, 978300760), ("1", "661", 3.0, 978302109)]
DAT = "1::1193::5::978300760\n1::661::3::978302109\n"
NAMED = Read(user="userId", item="movieId", value="rating", time="timestamp")
TABS = Read(separator="\t", header=False, user=0, item=1, value=2, time=3)
TRIPLETS = Read(separator="\t", header=False, user=0, item=1, value=2)
SONGS = (
    "b80344d063b5ccb3212f76538f3d9e43d87dca9e\tSOAKIMP12A8C130995\t1\n85c1f87fea955d09b4bec2e36aee110927aedf9a\tSOAPDEY\t12\n"
)


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


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
        ("ml-10m.zip", "ml-10M100K/ratings.dat", "1::122::3.5::838985046\n", ML, [("1", "122", 3.5, 838985046)]),
        (
            *("ml-20m.zip", "ml-20m/ratings.csv"),
            *("userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n", NAMED, [("1", "2", 3.5, 1112486027)]),
        ),
        ("ml-100k.zip", "ml-100k/u.data", "196\t242\t3\t881250949\n", TABS, [("196", "242", 3.0, 881250949)]),
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
GIGABYTE_OF_ZEROS = 64 * gzip.compress(bytes(16 << 20), mtime=0)
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
        (GIGABYTE_OF_ZEROS, "raw.dat.gz", None, "the line is longer than 8 MB"),
        (GIGABYTE_OF_EMPTY_LINES, "raw.dat.gz", None, "unpacks to more than .. MB, over 100 times its size"),
    ],
)  # fmt: skip
def test_a_damaged_archive_is_refused_by_name(content, name, member, message, rows_of):
    with pytest.raises(DataError, match=message) as error:
        if not rows_of(content, ML, name, member):
            raise DataError(f"/{name}: no interactions")  # as preparation says it
    assert f"/{name}:" in str(error.value)
    assert str(error.value).isprintable()


def test_what_a_tar_unpacks_before_the_member_counts(rows_of):
    """The tar is 30 MB of zeros, thrice, then the ratings; packed it is a thousandth."""
    files = {f"zeros{n}": bytes(30 << 20) for n in range(3)} | {"ratings.dat": DAT.encode()}
    with pytest.raises(DataError, match="unpacks to more than 64 MB"):
        rows_of(tarred(files, "w:gz"), ML, "raw.tar.gz", "ratings.dat")


def test_parquet_does_not_come_in_an_archive(rows_of):
    with pytest.raises(DataError, match=r"raw\.zip: Parquet is not read out of an archive; unpack it first"):
        rows_of(ZIP, Read(format="parquet"), "raw.zip", "a/ratings.dat")
