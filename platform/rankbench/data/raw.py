"""A raw file on disk, opened as a stream of bytes, read from an archive and decompressed if need be.

Nothing is extracted to disk, and the decompressed size is bounded. `blocks_of_lines` cuts a text stream into blocks.
"""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO

from rankbench.core.errors import DataError, first_line, printable
from rankbench.data import tar
from rankbench.data.cards import Read

DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, struct.error, UnicodeDecodeError),
)
# The ways to pack a member of a zip that zipfile unpacks no further than it is asked to.
ZIPPED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# A compressed text of interactions expands about tenfold; a decompression bomb, a thousandfold.
LARGEST_RATIO = 100
HARMLESS_BYTES = 64 << 20
BLOCK = 8 << 20  # bytes of text at a time
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
DEEPEST, MOST_NAMES = 4, 10_000  # of a folder: a dataset is not a home folder
ENCODED = "`read: {{encoding: {0}}}` in a card, `--encoding {0}` of `data import`"
NOT_UTF8 = f"not utf-8 text; if it has another encoding, name it: {ENCODED.format('latin-1')}"


@dataclass(frozen=True)
class RawFile:
    """A verified file on disk with one part of the data; `spec` says how to read it, `member` which file of an archive
    it is. `companions`: further files that the format needs, by name. `keep_missing`: whether the reader yields rows with a
    missing id, value or time, as null, instead of refusing them.
    """

    part: str
    path: Path
    sha256: str
    spec: Read
    origin: str
    member: str | None = None
    companions: dict[str, RawFile] = field(default_factory=dict)
    keep_missing: bool = False

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the stream of bytes. Raises DataError for a damaged archive, a missing member, or a decompression bomb."""
        with self._refusals(), self.path.open("rb") as file, self._unpacked(file) as content:
            yield content

    def names(self) -> list[str]:
        """The names of the files in this archive. Raises DataError if it is damaged, or unpacks to far more than it should."""
        with self._refusals(), self.path.open("rb") as file:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
            return [name for name, _ in self._of_tar(file)]

    def limit(self) -> int:
        """The maximum number of bytes that are unpacked from this file."""
        return max(HARMLESS_BYTES, LARGEST_RATIO * self.path.stat().st_size)

    def companion(self, name: str) -> RawFile:
        """The companion file `name`. Raises DataError if the card does not have it."""
        if name not in self.companions:
            raise DataError(f"{self.path}: the format {self.spec.format} needs source.companions.{name} in the card")
        return self.companions[name]

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise DataError, which names this file, for what goes wrong while it is read."""
        try:
            yield
        except tar.UnusualTar as error:
            raise DataError(f"{self.path}: the archive {error}; unpack it yourself if you trust it") from None
        except DAMAGED as error:
            raise _damaged(self.path, error) from None
        except OSError as error:
            if error.errno is None:  # not from the disk, but from bzip2
                raise _damaged(self.path, error) from None
            raise DataError(f"{self.path}: cannot be read: {first_line(error)}") from None

    @contextmanager
    def _unpacked(self, file: IO[bytes]) -> Iterator[IO[bytes]]:
        if self.member is not None:
            with self._archived(file) as member:
                name = self.member
                yield self._gunzipped(member) if name.endswith(".gz") else member
        elif self.path.name.endswith(".gz"):
            yield self._gunzipped(file)
        else:
            yield file

    @contextmanager
    def _archived(self, file: IO[bytes]) -> Iterator[IO[bytes]]:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive, self._zip_member(archive) as member:
                yield self._bounded(member)
            return
        for name, content in self._of_tar(file):
            if name == self.member:
                yield content
                return
        raise self._no_member()

    def _zip_member(self, archive: zipfile.ZipFile) -> IO[bytes]:
        try:
            packed = archive.getinfo(self.member).compress_type
            if packed not in ZIPPED:
                how = f"the compression {zipfile.compressor_names.get(packed, packed)}"
                raise DataError(f"{self.path}: {printable(self.member)} has {how}; only deflate is read: unpack it yourself")
            return archive.open(self.member)
        except KeyError:
            raise self._no_member() from None
        except (RuntimeError, ValueError) as error:  # encrypted, compressed in an unknown way, or damaged
            raise DataError(f"{self.path}: {first_line(error)}") from None

    def _of_tar(self, file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
        """The name and the content of each file of a tar; all that precedes a file is decompressed, and counts."""
        file.seek(0)
        return tar.files(self._bounded(tar.decompressed(file)), self.limit())

    def _no_member(self) -> DataError:
        return DataError(f"{self.path}: the archive holds no {self.member}")

    def _gunzipped(self, file: IO[bytes]) -> IO[bytes]:
        return self._bounded(gzip.GzipFile(fileobj=file))

    def _bounded(self, file: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(_Bounded(file, self.limit(), self.path), 1 << 20)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


def names_below(folder: Path) -> list[str]:
    """The names of the files below `folder`, relative to it, sorted. Hidden files and links to folders are left out."""
    names = []
    for root, folders, files in os.walk(folder):
        here = Path(root).relative_to(folder)
        folders[:] = sorted(each for each in folders if not each.startswith(".")) if len(here.parts) < DEEPEST else []
        names += [(here / file).as_posix() for file in sorted(files) if not file.startswith(".")]
        if len(names) > MOST_NAMES:
            raise DataError(f"{folder}: more than {MOST_NAMES:,} files; name the folder of one dataset")
    return names


def blocks_of_lines(file: IO[bytes], source: str, encoding: str = "utf-8") -> Iterator[tuple[int, bytes]]:
    """Yield the text of `file` as UTF-8, in blocks of about 8 MB, each with the number of its first line (from 1).

    A block has whole lines; each but perhaps the last ends in \\n, whatever its line end in the file (\\n, \\r\\n, \\r).
    A byte order mark is dropped. Raises DataError, naming `source` and the line, for a line longer than a block, or a text that
    is not of another `encoding` than UTF-8; whether UTF-8 is valid is left to the reader, which knows what it needs.
    """
    number, rest, held = 1, b"", b""
    for at, block in enumerate(chain(_utf8(file, source, encoding), [b""])):
        content = held + block
        if at == 0:
            content = content.removeprefix(BOM_UTF8)
            if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                raise DataError(f"{source}: not utf-8 but utf-16 text; name its encoding: {ENCODED.format('utf-16')}")
        # A \n that follows belongs to the \r.
        held = b"\r" if block.endswith(b"\r") else b""
        content = content.removesuffix(held)
        if b"\r" in content:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = content.rfind(b"\n") + 1
        if content and not end and len(rest) + len(content) >= BLOCK:
            raise DataError(
                f"{source}:{number}: the line is longer than {BLOCK >> 20} MB; is this a text with one interaction per line?"
            )
        if end:
            yield number, rest + content[:end]
            number += content.count(b"\n")
            rest = b""
        rest += content[end:]
    if rest:
        yield number, rest


def _utf8(file: IO[bytes], source: str, encoding: str) -> Iterator[bytes]:
    """The text in blocks, as UTF-8 whatever its encoding."""
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        yield from iter(lambda: file.read(BLOCK), b"")
        return
    decoder, first, content = codecs.getincrementaldecoder(encoding)(), 1, b"?"
    while content:
        content = file.read(BLOCK)
        try:
            text = decoder.decode(content, final=not content)
            block = text.encode()
        except UnicodeError as error:
            wrong = error.object[error.start : error.start + 1] if isinstance(error, UnicodeDecodeError) else b""
            line = first + error.object[: error.start].count(b"\n") if wrong else first
            what = f" (byte 0x{wrong.hex()})" if wrong else ""
            advice = "name its encoding in the card's read.encoding, such as utf-8 or latin-1"
            raise DataError(f"{source}:{line}: not {encoding} text{what}; {advice}") from None
        first += text.count("\n")
        yield block


class _Bounded(io.RawIOBase):
    """A stream that raises DataError after `limit` bytes."""

    def __init__(self, file: IO[bytes], limit: int, path: Path):
        self._file, self._limit, self._path, self._read = file, limit, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        content = self._file.read(len(buffer))
        self._read += len(content)
        if self._read > self._limit:
            raise bomb(self._path, self._limit)
        buffer[: len(content)] = content
        return len(content)


def _damaged(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path}: damaged, or not the archive that its name says ({first_line(error)}); delete it and fetch again")


def bomb(path: Path, limit: int, advice: str = "unpack it yourself") -> DataError:
    """The error for a file that unpacks to more than `limit` bytes; `advice`: what to do with one that is trusted."""
    return DataError(
        f"{path}: unpacks to more than {limit >> 20} MB, over {LARGEST_RATIO} times its size; "
        f"real datasets expand far less: {advice} if you trust it"
    )
