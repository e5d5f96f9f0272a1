"""Objects in an S3-compatible store, through pyarrow: read, write whole, list, remove.

An object appears complete or not at all, and whoever lists afterwards sees it. Nothing can be appended or renamed. pyarrow has
no conditional writes, so two writers of one key would overwrite each other; `core.attempts` gives each writer keys of its own.
Credentials come from the usual AWS variables and files of each host; they are never sent to another one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rankbench.core.errors import ConfigError, StorageError, first_line, require

SCHEME = "s3://"
_CHUNK = 8 << 20  # bytes of a file that are in memory at once
_CONNECT = 5  # seconds for a connection
# How often a failed request is sent: for some seconds at first, when the address may be wrong, and for a minute or two once the
# store has answered, because its outage must not end a sweep.
_TRIES, _PATIENT_TRIES = 4, 10
_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_MEANS = {  # name of an AWS error → what to do about it
    "NO_SUCH_BUCKET": "there is no such bucket; create it first",
    "ACCESS_DENIED": "access is denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do",
    "INVALID_ACCESS_KEY_ID": "the key is unknown; check AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "the secret is wrong; check AWS_SECRET_ACCESS_KEY",
    "NETWORK_CONNECTION": "the store does not answer; check AWS_ENDPOINT_URL",
}

_Place = tuple[str, str | None, str | None]  # bucket, endpoint, region
_answered: set[_Place] = set()  # the stores that have answered this process


@dataclass(frozen=True)
class Storage:
    """The objects below a prefix of a bucket; keys are relative to the prefix. `uri`: s3://BUCKET or s3://BUCKET/PREFIX."""

    uri: str
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def from_env(cls, uri: str, source: str) -> Storage:
        """The store at `uri`, with the endpoint and region of the AWS variables. Nothing is connected.

        Raises ConfigError, starting with `source`, if `uri` or the endpoint cannot work.
        """
        match = _URI.fullmatch(uri.rstrip("/"))
        require(match is not None, f"{source}={uri}: expected s3://BUCKET/PREFIX, with a bucket of small letters and digits")
        assert match
        parts = (match[2] or "").split("/")
        require("" not in parts[:-1] and not {".", ".."} & {*parts}, f"{source}={uri}: expected s3://BUCKET/PREFIX")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        if endpoint is not None and not re.fullmatch(r"https?://[^/\s]+/?", endpoint):
            raise ConfigError(f"AWS_ENDPOINT_URL={endpoint}: expected http(s)://HOST:PORT")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return cls(uri.rstrip("/"), endpoint, region)

    def __str__(self) -> str:
        return self.uri

    def below(self, key: str) -> Storage:
        """The objects below a further prefix."""
        return Storage(f"{self.uri}/{key}", self.endpoint, self.region)

    def read(self, key: str) -> bytes | None:
        """Return an object's content, None if there is none."""
        with self._errors_are_clear(key):
            try:
                with self._files.open_input_stream(self._path(key)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, key: str, content: bytes) -> None:
        """Write an object; an earlier one with this key is replaced."""
        with self._errors_are_clear(key), self._files.open_output_stream(self._path(key)) as stream:
            stream.write(content)

    def upload(self, key: str, path: Path) -> None:
        """Write an object with the content of a file. It may be incomplete if the file cannot be read to its end."""
        with path.open("rb") as file, self._errors_are_clear(key), self._files.open_output_stream(self._path(key)) as stream:
            shutil.copyfileobj(file, stream, _CHUNK)

    def download(self, key: str, path: Path) -> None:
        """Write an object's content to a new file. Raises StorageError if there is no such object."""
        with path.open("wb") as file, self._errors_are_clear(key), self._files.open_input_stream(self._path(key)) as stream:
            shutil.copyfileobj(stream, file, _CHUNK)

    def names(self, key: str = "") -> list[str]:
        """Names directly below a prefix, of objects and of further prefixes, sorted."""
        return sorted({path.rpartition("/")[2] for path, _ in self._list(key, recursive=False)})

    def objects(self, key: str = "") -> list[str]:
        """Keys of all objects below a prefix, sorted; relative to this storage."""
        start = len(self._path("")) + 1
        return sorted(path[start:] for path, is_object in self._list(key, recursive=True) if is_object)

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self._errors_are_clear(key), suppress(FileNotFoundError):
            self._files.delete_file(self._path(key))

    def require_writable(self) -> None:
        """Raise StorageError if an object cannot be written, read and removed here."""
        probe = f".rankbench-probe-{secrets.token_hex(4)}"
        self.write(probe, b"probe")
        if self.read(probe) != b"probe":
            raise StorageError(f"{self}: does not return what was written")
        self.remove(probe)

    def _list(self, key: str, recursive: bool) -> list[tuple[str, bool]]:
        """Path of each entry below a prefix, and whether it is an object."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path(key), allow_not_found=True, recursive=recursive)
        with self._errors_are_clear(key):
            return [(info.path, info.type == fs.FileType.File) for info in self._files.get_file_info(selector)]

    def _path(self, key: str) -> str:
        """A key as pyarrow takes it, with the bucket."""
        root = self.uri.removeprefix(SCHEME)
        return f"{root}/{key}" if key else root

    @property
    def _files(self) -> Any:
        return _file_system(*self._place, _PATIENT_TRIES if self._place in _answered else _TRIES)

    @property
    def _place(self) -> _Place:
        return self.uri.removeprefix(SCHEME).partition("/")[0], self.endpoint, self.region

    @contextmanager
    def _errors_are_clear(self, key: str) -> Iterator[None]:
        """Turn errors of the store into a StorageError of one line that names the object."""
        try:
            yield
            _answered.add(self._place)
        except OSError as error:
            if error.errno is not None and not isinstance(error, FileNotFoundError):
                raise  # of the local file
            text = first_line(error)
            name = re.search(r"AWS Error (\w+)", text)
            meaning = _MEANS.get(name[1] if name else "", text)
            if isinstance(error, FileNotFoundError):
                meaning = "no such object"
            raise StorageError(f"{self.uri}/{key}: {meaning}".replace("/: ", ": ")) from None


@cache
def _file_system(bucket: str, endpoint: str | None, region: str | None, tries: int) -> Any:
    """The connection of this process to a bucket. Without an endpoint, AWS itself is asked where the bucket is."""
    try:
        from pyarrow import fs
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
    except ImportError:
        raise ConfigError(f"{SCHEME}{bucket}: this build of pyarrow has no S3; pip install pyarrow") from None
    if region is None:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    retries = AwsStandardS3RetryStrategy(max_attempts=tries)
    return S3FileSystem(endpoint_override=endpoint, region=region, connect_timeout=_CONNECT, retry_strategy=retries)


def is_storage(text: str) -> bool:
    """Whether a folder's name is the address of a store, of whatever kind."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None
