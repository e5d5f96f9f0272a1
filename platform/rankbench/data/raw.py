"""A raw file on disk, opened as a stream of bytes: out of an archive where it lies in one, unpacked where it is packed.

Nothing is extracted to disk, and what a packed file may unpack to is bounded. `blocks_of_lines` cuts a stream of text.
"""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rankbench.core.errors import DataError
from rankbench.data.cards import Read

DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, struct.error, UnicodeDecodeError),
)
# A packed text of interactions unpacks to ten times its size or so; a decompression bomb to a thousand times.
LARGEST_RATIO = 100
HARMLESS_BYTES = 64 << 20
BLOCK = 8 << 20  # bytes of text at a time


@dataclass(frozen=True)
class RawFile:
    """One part on disk, its checksum held against the card; `spec` says how to read it, `member` which file of an
    archive it is. `companions`: further files that the format needs, by name.
    """

    part: str
    path: Path
    sha256: str
    spec: Read
    origin: str
    member: str | None = None
    companions: dict[str, RawFile] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes to read. Raises DataError for a damaged archive, a missing member, or a bomb."""
        try:
            with self.path.open("rb") as file, self._unpacked(file) as content:
                yield content
        except DAMAGED as error:
            raise DataError(
                f"{self.path}: damaged, or not the archive that its name says ({_first_line(error)}); delete it and fetch again"
            ) from None
        except OSError as error:  # the disk, or bytes that no bzip2 has written
            raise DataError(f"{self.path}: cannot be read: {_first_line(error)}") from None

    def companion(self, name: str) -> RawFile:
        """Raises DataError when the card names none called so."""
        if name not in self.companions:
            raise DataError(f"{self.path}: the format {self.spec.format} needs source.companions.{name} in the card")
        return self.companions[name]

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
        file.seek(0)
        with self._tar(file) as archive:
            for entry in archive:
                if entry.name.removeprefix("./") == self.member and entry.isfile():
                    yield self._bounded(archive.extractfile(entry))
                    return
                if entry.offset_data + entry.size > self._limit():  # what lies before the member is unpacked as well
                    raise _bomb(self.path, self._limit())
        raise self._no_member()

    def _zip_member(self, archive: zipfile.ZipFile) -> IO[bytes]:
        try:
            return archive.open(self.member)
        except KeyError:
            raise self._no_member() from None
        except (RuntimeError, NotImplementedError, ValueError) as error:  # encrypted, of an unknown packing, or damaged
            raise DataError(f"{self.path}: {_first_line(error)}") from None

    def _tar(self, file: IO[bytes]) -> tarfile.TarFile:
        try:
            # Read as a stream: to seek in a packed archive would unpack it again and again.
            return tarfile.open(fileobj=file, mode="r|*")
        except TypeError:  # how tarfile takes a gzip header that is cut short
            raise tarfile.ReadError("unexpected end of data") from None

    def _no_member(self) -> DataError:
        return DataError(f"{self.path}: the archive holds no {self.member}")

    def _gunzipped(self, file: IO[bytes]) -> IO[bytes]:
        return self._bounded(gzip.GzipFile(fileobj=file))

    def _bounded(self, file: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(_Bounded(file, self._limit(), self.path), 1 << 20)

    def _limit(self) -> int:
        """Bytes that it may unpack to."""
        return max(HARMLESS_BYTES, LARGEST_RATIO * self.path.stat().st_size)


def blocks_of_lines(file: IO[bytes], where: str) -> Iterator[tuple[int, bytes]]:
    """The text of `file` in blocks of 8 MB or so, each with the number of its first line (from 1).

    A block is whole lines; each line but perhaps the last ends in \\n, however it ended in the file (\\n, \\r\\n, \\r). A byte
    order mark is left out. Raises DataError, naming `where` and the line, for a line that no block holds.
    """
    number, rest = 1, b""
    content = file.read(BLOCK).removeprefix(BOM_UTF8)
    while content:
        if content.endswith(b"\r"):
            content += file.read(1)  # a \n here belongs to the \r
        if b"\r" in content:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = content.rfind(b"\n") + 1
        if not end and len(rest) + len(content) >= BLOCK:
            raise DataError(
                f"{where}:{number}: the line is longer than {BLOCK >> 20} MB; is this a text, one interaction a line?"
            )
        if end:
            yield number, rest + content[:end]
            number += content.count(b"\n")
            rest = b""
        rest += content[end:]
        content = file.read(BLOCK)
    if rest:
        yield number, rest


class _Bounded(io.RawIOBase):
    """A stream that refuses to go on past `limit` bytes."""

    def __init__(self, file: IO[bytes], limit: int, path: Path):
        self._file, self._limit, self._path, self._read = file, limit, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        content = self._file.read(len(buffer))
        self._read += len(content)
        if self._read > self._limit:
            raise _bomb(self._path, self._limit)
        buffer[: len(content)] = content
        return len(content)


def _bomb(path: Path, limit: int) -> DataError:
    return DataError(
        f"{path}: unpacks to more than {limit >> 20} MB, over {LARGEST_RATIO} times its size; "
        "no dataset does: unpack it yourself if you trust it"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
