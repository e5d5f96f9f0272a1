"""A tar, compressed or not, read as a stream in bounded memory and time.

tarfile believes what an archive says about itself: it holds names of any length, a list of all entries and the map of a sparse
file, and steps over entries of any size. What no dataset has is refused here.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Iterator
from typing import IO

# Bytes of a name, or of the attributes of a file. A path has 4,096 at most. Some versions of tarfile need the square of this,
# in memory and time, for attributes that are malformed.
LONGEST_HEADER = 16 << 10
MOST_ATTRIBUTES = 1000  # of the whole archive; tarfile copies them for each of its files
NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
ATTRIBUTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class UnusualTar(tarfile.TarError):
    """A tar is not damaged, but has what no dataset has. The message says what, after the words "the archive"."""


class _Entry(tarfile.TarInfo):
    """An entry of a tar that ends as it should, and whose headers are as small as they should be."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(archive)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):  # which tarfile takes for the end of the archive
            raise tarfile.ReadError("unexpected end of data") from None
        except (ValueError, OverflowError):  # a number that is none
            raise tarfile.ReadError("bad header") from None
        except RecursionError:  # each header that describes the next one is a call
            raise UnusualTar("describes one file by hundreds of headers") from None

    # Called for every header before what follows it is read: the method of tarfile that subclasses are meant to override.
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in (*NAMES, *ATTRIBUTES) and not 0 <= self.size <= LONGEST_HEADER:
            does = "names" if self.type in NAMES else "describes"
            raise UnusualTar(f"{does} a file in {self.size:,} bytes, of which at most {LONGEST_HEADER:,} are read")
        if len(archive.pax_headers) > MOST_ATTRIBUTES:
            raise UnusualTar(f"describes all its files by more than {MOST_ATTRIBUTES:,} attributes")
        return super()._proc_member(archive)

    def _refuse_sparse(self, *_) -> None:
        raise UnusualTar("has a sparse file")

    # The four forms of a sparse file.
    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """The stream of a tar, as its first bytes say: by gzip, bzip2, xz, or as it is. No more is unpacked than what is read."""
    head = file.read(10)
    file.seek(0)
    if head.startswith(b"\x1f\x8b\x08"):
        return gzip.GzipFile(fileobj=file)
    if head.startswith(b"BZh") and head.endswith(b"1AY&SY"):
        return bz2.BZ2File(file)
    if head.startswith((b"\xfd7zXZ", b"\x5d\x00\x00\x80")):
        return lzma.LZMAFile(file)
    return file


def files(tar: IO[bytes], most: int) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and the stream of each file in the stream of an uncompressed tar; a stream ends with the next file.

    Raises tarfile.TarError for a damaged tar, and UnusualTar for one that has more than `most` bytes, or unusual headers.
    """
    # Read as a stream: each seek in a compressed archive would decompress it again.
    with tarfile.open(fileobj=tar, mode="r|", tarinfo=_Entry) as archive:
        while (entry := archive.next()) is not None:
            archive.members.clear()  # tarfile keeps all entries
            if entry.offset_data + entry.size > most:
                raise UnusualTar(f"unpacks to more than {most >> 20} MB, far more than a dataset of its size")
            if entry.isfile():
                yield entry.name.removeprefix("./"), archive.extractfile(entry)
