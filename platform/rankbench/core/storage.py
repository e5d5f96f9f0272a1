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
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rankbench.core.errors import ConfigError, StorageError, first_line, require
from rankbench.core.redaction import without_password

P = ParamSpec("P")
T = TypeVar("T")
SCHEME = "s3://"
_CHUNK = 8 << 20  # bytes of a file that are in memory at once
_CONNECT = 5  # seconds for a connection
_TRIES = 2  # of one request by the client itself, which waits between them for less than a second
# Seconds in which a request that failed is sent again: few at first, when the address may be wrong, and for a probe; and two
# minutes once the store has answered, because its outage must not end a sweep. A request may take some seconds longer.
LIMIT, PATIENT_LIMIT = 10.0, 120.0
_LONGEST_PAUSE = 10.0  # seconds
_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_MEANS = {  # name of an AWS error → what to do about it
    "NO_SUCH_BUCKET": "there is no such bucket; create it first",
    "ACCESS_DENIED": "access is denied; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do",
    "INVALID_ACCESS_KEY_ID": "the key is unknown; check AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "the secret is wrong; check AWS_SECRET_ACCESS_KEY",
    "NETWORK_CONNECTION": "the store does not answer, or not to the end; check AWS_ENDPOINT_URL",
}
_PASSING = ("NETWORK_CONNECTION", "INTERNAL_FAILURE", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "THROTTLING", "REQUEST_TIMEOUT")

_KEYS = "; keys are given by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

_Place = tuple[str, str | None, str | None]  # bucket, endpoint, region
_answered: set[_Place] = set()  # the stores that have answered this process


def _repeated(action: Callable[Concatenate[Storage, str, P], T]) -> Callable[Concatenate[Storage, str, P], T]:
    """Repeat an action on the object `key` as a whole, for some seconds, while the store fails in a way that may pass.

    Raises StorageError of one line that names the object.
    """

    @wraps(action)
    def repeated(store: Storage, key: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        start, pause = time.monotonic(), 0.5
        while True:
            try:
                result = action(store, key, *args, **kwargs)
                _answered.add(store._place)
                return result
            except OSError as error:
                if error.errno is not None and not isinstance(error, FileNotFoundError):
                    raise  # of the local file
                text, past = first_line(error), time.monotonic() - start
                match = re.search(r"AWS Error (\w+)", text)
                name = match[1] if match else ""
                passing = name in _PASSING or "HTTP status 5" in text
                if passing and past + pause < (PATIENT_LIMIT if store._place in _answered else LIMIT):
                    time.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                meaning = "no such object" if isinstance(error, FileNotFoundError) else _MEANS.get(name, text)
                tried = f" (tried for {past:.0f} s)" if passing else ""
                raise StorageError(f"{store}/{key}: {meaning}{tried}".replace("/: ", ": ")) from None

    return repeated


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
        match, place = _URI.fullmatch(uri.rstrip("/")), f"{source}={shown_address(uri)}"
        require(match is not None, f"{place}: expected s3://BUCKET/PREFIX, with a bucket of small letters and digits{_KEYS}")
        assert match
        parts = (match[2] or "").split("/")
        require("" not in parts[:-1] and not {".", ".."} & {*parts}, f"{place}: expected s3://BUCKET/PREFIX")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        if endpoint is not None and not re.fullmatch(r"https?://[^/\s@]+/?", endpoint):
            raise ConfigError(f"AWS_ENDPOINT_URL={shown_address(endpoint)}: expected http(s)://HOST:PORT{_KEYS}")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return cls(uri.rstrip("/"), endpoint, region)

    def __str__(self) -> str:
        return self.uri

    def below(self, key: str) -> Storage:
        """The objects below a further prefix."""
        return Storage(f"{self.uri}/{key}", self.endpoint, self.region)

    @_repeated
    def read(self, key: str) -> bytes | None:
        """Return an object's content, None if there is none."""
        try:
            with self._files.open_input_stream(self._path(key)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    @_repeated
    def write(self, key: str, content: bytes) -> None:
        """Write an object; an earlier one with this key is replaced."""
        with self._files.open_output_stream(self._path(key)) as stream:
            stream.write(content)

    @_repeated
    def upload(self, key: str, path: Path) -> None:
        """Write an object with the content of a file. It may be incomplete if the file cannot be read to its end."""
        with path.open("rb") as file, self._files.open_output_stream(self._path(key)) as stream:
            shutil.copyfileobj(file, stream, _CHUNK)

    @_repeated
    def download(self, key: str, path: Path) -> None:
        """Write an object's content to a new file. Raises StorageError if there is no such object."""
        with path.open("wb") as file, self._files.open_input_stream(self._path(key)) as stream:
            shutil.copyfileobj(stream, file, _CHUNK)

    def names(self, key: str = "") -> list[str]:
        """Names directly below a prefix, of objects and of further prefixes, sorted."""
        return sorted({path.rpartition("/")[2] for path, _ in self._list(key, recursive=False)})

    def objects(self, key: str = "") -> list[str]:
        """Keys of all objects below a prefix, sorted; relative to this storage."""
        start = len(self._path("")) + 1
        return sorted(path[start:] for path, is_object in self._list(key, recursive=True) if is_object)

    @_repeated
    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(key))

    def require_writable(self) -> None:
        """Raise StorageError if an object cannot be written, read and removed here."""
        probe = f".rankbench-probe-{secrets.token_hex(4)}"
        self.write(probe, b"probe")
        _answered.discard(self._place)  # a command that begins does not wait for minutes
        if self.read(probe) != b"probe":
            raise StorageError(f"{self}: does not return what was written")
        self.remove(probe)

    @_repeated
    def _list(self, key: str, recursive: bool) -> list[tuple[str, bool]]:
        """Path of each entry below a prefix, and whether it is an object."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path(key), allow_not_found=True, recursive=recursive)
        return [(info.path, info.type == fs.FileType.File) for info in self._files.get_file_info(selector)]

    def _path(self, key: str) -> str:
        """A key as pyarrow takes it, with the bucket."""
        root = self.uri.removeprefix(SCHEME)
        return f"{root}/{key}" if key else root

    @property
    def _files(self) -> Any:
        return _file_system(*self._place)

    @property
    def _place(self) -> _Place:
        return self.uri.removeprefix(SCHEME).partition("/")[0], self.endpoint, self.region


@cache
def _file_system(bucket: str, endpoint: str | None, region: str | None) -> Any:
    """The connection of this process to a bucket. Without an endpoint, AWS itself is asked where the bucket is."""
    try:
        from pyarrow import fs
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
    except ImportError:
        raise ConfigError(f"{SCHEME}{bucket}: this build of pyarrow has no S3; pip install pyarrow") from None
    if region is None:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    retries = AwsStandardS3RetryStrategy(max_attempts=_TRIES)
    return S3FileSystem(endpoint_override=endpoint, region=region, connect_timeout=_CONNECT, retry_strategy=retries)


def shown_address(address: str) -> str:
    """The address without the user name and password that it may have."""
    return without_password(address) if "@" in address else address


def is_storage(text: str) -> bool:
    """Whether a folder's name is the address of a store, of whatever kind."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None
