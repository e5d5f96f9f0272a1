"""A raw file on disk, opened as a stream of bytes: out of an archive where it lies in one, unpacked where it is packed.

Nothing is extracted to disk, and what a packed file may unpack to is bounded.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rankbench.data.cards import Read
from rankbench.errors import DataError

# A packed text of interactions unpacks to ten times its size or so; a decompression bomb to a thousand times.
LARGEST_RATIO = 100
HARMLESS_BYTES = 256 << 20


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
        except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(
                f"{self.path}: damaged, or not the archive that its name says ({_first_line(error)}); delete it and fetch again"
            ) from None

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
        # Read as a stream: to seek in a packed archive would unpack it again and again.
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for entry in archive:
                if entry.name.removeprefix("./") == self.member and entry.isfile():
                    yield self._bounded(archive.extractfile(entry))
                    return
        raise self._no_member()

    def _zip_member(self, archive: zipfile.ZipFile) -> IO[bytes]:
        try:
            return archive.open(self.member)
        except KeyError:
            raise self._no_member() from None
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python does not know
            raise DataError(f"{self.path}: {_first_line(error)}") from None

    def _no_member(self) -> DataError:
        return DataError(f"{self.path}: the archive holds no {self.member}")

    def _gunzipped(self, file: IO[bytes]) -> IO[bytes]:
        return self._bounded(gzip.GzipFile(fileobj=file))

    def _bounded(self, file: IO[bytes]) -> IO[bytes]:
        limit = max(HARMLESS_BYTES, LARGEST_RATIO * self.path.stat().st_size)
        return io.BufferedReader(_Bounded(file, limit, self.path), 1 << 20)


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
            raise DataError(
                f"{self._path}: unpacks to more than {self._limit >> 20} MB, over {LARGEST_RATIO} times its size; "
                "no dataset does: unpack it yourself if you trust it"
            )
        buffer[: len(content)] = content
        return len(content)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
