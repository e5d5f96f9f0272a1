"""Download a file: resume, retry, verify, and never connect to an address that is not public.

`<target>.part` grows beside the target and is renamed to it once complete and checked; `<target>.part.json` keeps the server's
name for this version of the file, so that a later attempt resumes only the same version.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from filelock import FileLock
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from rankbench.core.errors import DataError, DownloadError, StorageError, printable
from rankbench.core.files import disk_errors_are_clear, make_folder, write_json
from rankbench.data.cards import without_query
from rankbench.data.checksums import hashed

TRIES = 5
LONGEST_WAIT = 60  # seconds between two attempts, whatever the server asks for
REDIRECTS = 5
LARGEST = 50 << 30  # bytes; every dataset here is far smaller
CHUNK = 1 << 16  # bytes; the most that a broken connection loses
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # the form of IPv4 addresses in networks without IPv4
_RETRIED = {408, 425, 429, 500, 502, 503, 504}  # status codes after which another attempt may succeed

Progress = Callable[[int, int | None], None]


class _TryAgain(Exception):
    """The connection or the server failed temporarily; `wait`: the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


class _Session(requests.Session):
    """A session that ignores redirects; even with allow_redirects=False requests would read the whole body of each."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class _NotFound(DownloadError):
    """The host name has no address: it is wrong, or there is no network."""


def public_https(url: str) -> None:
    """Raise DataError unless `url` is https on a host whose addresses are all public."""
    shown = without_query(url)  # that of a redirect is chosen by the server
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 443
    except ValueError as error:
        raise DataError(f"{shown}: {error}") from None
    if parts.scheme != "https" or not host:
        raise DataError(f"{shown}: only https:// is downloaded")
    try:
        addresses = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise _NotFound(f"cannot download {shown}: its host is not found ({error.strerror}); is there a network?") from None
    except UnicodeError:
        raise DataError(f"{shown}: its host name is not valid") from None
    for *_, address in addresses:
        if not _is_public(address[0].partition("%")[0]):
            raise DataError(f"{shown}: leads to {address[0]}, which is not a public address")


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if address.version == 6:
        # An IPv4 address written as IPv6 leads to the same host.
        translated = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        address = translated or address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast


def download(
    url: str,
    target: Path,
    expected: Mapping[str, str],
    progress: Progress = lambda done, total: None,
    allowed: Callable[[str], None] = public_https,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Download `url` to `target`. `expected`: its checksums by kind ("sha256", "md5"), as far as they are known. Raises
    DataError if it is not available or a checksum differs, StorageError if the disk cannot hold it. Received bytes are kept for
    the next attempt, unless they are wrong.

    One process downloads while others wait for it. `allowed` is called before every request, including redirects, and
    raises to refuse it. `progress(done, total)` counts bytes; total is None if the server does not say.
    """
    make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")
    with disk_errors_are_clear(target), FileLock(target.with_name(f"{target.name}.lock")):
        if target.is_file():
            return
        for attempt in range(1, TRIES + 1):
            try:
                _receive(url, part, progress, allowed)
                break
            except _NotFound:
                # Raised at once on the first attempt; later the name is known to be right, and the network is down.
                if attempt in (1, TRIES):
                    raise
                wait = None
            except _TryAgain as error:
                if isinstance(error, _Stale):
                    part.unlink(missing_ok=True)
                if attempt == TRIES:
                    raise DownloadError(f"cannot download {without_query(url)}: {error} ({TRIES} tries)") from None
                wait = error.wait
            pause(min(LONGEST_WAIT, 2.0**attempt if wait is None else wait))
        _verify(url, part, expected)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
        _version_file(part).unlink(missing_ok=True)


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


@dataclass(frozen=True)
class _Version:
    """The server's name for a version of the file; a partial download whose version has no `tag` is not resumed."""

    url: str
    tag: str | None
    total: int | None

    @classmethod
    def of(cls, url: str, response: requests.Response, total: int | None) -> _Version:
        tag = response.headers.get("ETag")
        if not tag or tag.startswith("W/"):  # a weak ETag does not guarantee the same bytes
            tag = response.headers.get("Last-Modified")
        return cls(url, tag or None, total)


def _resumable(part: Path, url: str) -> _Version | None:
    """The version of the bytes received earlier, if the download can be resumed."""
    try:
        version = _Version(**json.loads(_version_file(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return version if version.url == url and version.tag and part.is_file() and part.stat().st_size else None


def _receive(url: str, part: Path, progress: Progress, allowed: Callable[[str], None]) -> None:
    """Download the missing bytes of `part`."""
    earlier = _resumable(part, url)
    received = part.stat().st_size if earlier else 0
    if earlier and earlier.total == received:
        return
    headers = {"Accept-Encoding": "identity"}
    if earlier:
        headers |= {"Range": f"bytes={received}-", "If-Range": earlier.tag}
    with _Session() as session, _request(session, url, headers, allowed) as response:
        start, total = _position(response, earlier, received)
        if start == 0:
            # Before the version is written: if the process is killed in between, old bytes must not get the new version.
            part.unlink(missing_ok=True)
            write_json(_version_file(part), vars(_Version.of(url, response, total)))
        if total is not None:
            _require_space(url, part, total, total - start)
        _write(response, part, start, total, progress, url)


def _request(session: requests.Session, url: str, headers: dict[str, str], allowed: Callable[[str], None]) -> requests.Response:
    """The response after following redirects, each of which must be allowed."""
    location = url
    for _ in range(REDIRECTS + 1):
        allowed(location)
        try:
            response = session.get(location, headers=headers, stream=True, timeout=60, allow_redirects=False)
        except requests.RequestException as error:
            raise _TryAgain(type(error).__name__) from None
        if response.is_redirect:
            response.close()
            target = response.headers["Location"]
            try:
                location = urljoin(location, target)
            except ValueError:
                raise DownloadError(f"cannot download {without_query(url)}: redirected to {without_query(target)}") from None
            continue
        if response.status_code in (200, 206, 416):
            return response
        response.close()
        answer = f"the server answers {response.status_code}"
        if response.status_code in _RETRIED:
            raise _TryAgain(answer, _seconds(response.headers.get("Retry-After")))
        raise DownloadError(f"cannot download {without_query(url)}: {answer} {printable(response.reason or '')}")
    raise DownloadError(f"cannot download {without_query(url)}: more than {REDIRECTS} redirects")


def _seconds(retry_after: str | None) -> float | None:
    """Seconds to wait by the Retry-After header, which holds a number of seconds or a date; None if it holds neither."""
    try:
        return Retry().parse_retry_after(retry_after or "")
    except (HTTPError, ValueError, OverflowError):
        return None


def _number(text: str | None) -> int | None:
    """The number in a header; None if it is not a number or too large for the size of a file."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _position(response: requests.Response, earlier: _Version | None, received: int) -> tuple[int, int | None]:
    """The offset of the response's first byte in the file (0 if the server sends the whole file), and the file's size."""
    if response.status_code == 200:
        return 0, _number(response.headers.get("Content-Length"))
    span, _, length = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    total = _number(length)
    if response.status_code == 416 or not span.startswith(f"{received}-"):
        # The received bytes are not the beginning of the server's file: the next attempt starts again.
        raise _Stale
    if earlier is not None:
        # Many servers support Range but not If-Range, and would continue with another version of the file.
        tag = _Version.of(earlier.url, response, total).tag
        if (tag or earlier.tag) != earlier.tag or (total or earlier.total) != (earlier.total or total):
            raise _Stale
        total = total or earlier.total
    return received, total


class _Stale(_TryAgain):
    def __init__(self) -> None:
        super().__init__("the server does not continue the file", 0.0)


def _require_space(url: str, part: Path, total: int, missing: int) -> None:
    if total > LARGEST:
        raise DataError(
            f"{without_query(url)}: {total / 1e9:.0f} GB is more than the limit of {LARGEST >> 30} GB for a download"
        )
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise StorageError(f"{part.parent}: {missing / 1e9:.1f} GB are still to download, {free / 1e9:.1f} GB are free")


def _write(response: requests.Response, part: Path, start: int, total: int | None, progress: Progress, url: str) -> None:
    done, shown = start, 0.0
    with part.open("ab" if start else "wb") as file:
        try:
            # Without decoding: the bytes are the file, and servers label a .gz file as "encoded" too.
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                done += len(chunk)
                if done > LARGEST:
                    raise DataError(f"{without_query(url)}: more than the limit of {LARGEST >> 30} GB for a download")
                if time.monotonic() - shown > 0.1:
                    progress(done, total)
                    shown = time.monotonic()
        except HTTPError:
            raise _TryAgain(f"the connection broke after {done:,} bytes") from None
    progress(done, total)
    if total is not None and done != total:
        raise _TryAgain(f"received {done:,} of {total:,} bytes")


def _verify(url: str, part: Path, expected: Mapping[str, str]) -> None:
    for kind, digest in hashed(part, expected).items() if expected else ():
        if digest != expected[kind]:
            part.unlink()
            _version_file(part).unlink(missing_ok=True)
            says = f"the card says {expected[kind]}"
            raise DataError(f"{without_query(url)}: {kind} is {digest}, {says}; the downloaded file is deleted")
