"""A file from the internet: resumed, tried again, verified, and never fetched from where no dataset lies.

`<target>.part` grows beside the target and becomes it when whole and checked; `<target>.part.json` keeps what the server
calls this version of the file, so that a later try goes on only with the same one.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from filelock import FileLock
from urllib3.exceptions import HTTPError

from rankbench.core.errors import DataError, DownloadError, StorageError, printable
from rankbench.core.files import disk_errors_are_clear, make_folder, write_json

TRIES = 5
LONGEST_WAIT = 60  # seconds between two tries, whatever the server asks for
REDIRECTS = 5
LARGEST = 50 << 30  # bytes; no dataset here comes near
CHUNK = 1 << 16  # bytes; as much as a broken connection may lose
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses as networks without IPv4 write them
_AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers that another try may turn into the file

Progress = Callable[[int, int | None], None]


class _TryAgain(Exception):
    """The connection or the server failed for now; `wait`: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


class _Session(requests.Session):
    """Leaves redirects to us: requests would read the whole body of each, however long, even when told not to follow."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class _NotFound(DownloadError):
    """The host has no address: a wrong name, or no network."""


def public_https(url: str) -> None:
    """Raise DataError unless `url` is https on a host whose addresses are all public."""
    shown = printable(url)  # a redirect's words are the server's
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 443
    except ValueError as error:
        raise DataError(f"{shown}: {error}") from None
    if parts.scheme != "https" or not host:
        raise DataError(f"{shown}: only https:// is downloaded")
    try:
        found = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise _NotFound(f"cannot download {shown}: its host is not found ({error.strerror}); is there a network?") from None
    except UnicodeError:
        raise DataError(f"{shown}: its host is no name of the internet") from None
    for *_, address in found:
        if not _is_public(address[0].partition("%")[0]):
            raise DataError(f"{shown}: leads to {address[0]}, which is no public address")


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if address.version == 6:
        # An IPv4 address in the clothes of IPv6 leads where the IPv4 address does.
        within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        address = within or address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast


def download(
    url: str,
    target: Path,
    sha256: str | None = None,
    md5: str | None = None,
    progress: Progress = lambda done, total: None,
    allowed: Callable[[str], None] = public_https,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Make `target` the file at `url`, or raise: DataError when it cannot be had or is not the file of the checksum,
    StorageError when the disk cannot hold it. What was received stays for the next try, unless it is wrong.

    One process downloads, others wait for it. `allowed` is asked before every request, redirects included.
    `progress(done, total)` counts bytes; total is None where the server does not say.
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
                # Said at once when nothing was reached yet; later on it is the network that is away.
                if attempt in (1, TRIES):
                    raise
                wait = None
            except _TryAgain as error:
                if isinstance(error, _Stale):
                    part.unlink(missing_ok=True)
                if attempt == TRIES:
                    raise DownloadError(f"cannot download {url}: {error} ({TRIES} tries)") from None
                wait = error.wait
            pause(min(LONGEST_WAIT, 2.0**attempt if wait is None else wait))
        _verify(url, part, sha256, md5)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
        _version_file(part).unlink(missing_ok=True)


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


@dataclass(frozen=True)
class _Version:
    """What the server calls the file that a part belongs to; a part without such a name is not continued."""

    url: str
    tag: str | None
    total: int | None

    @classmethod
    def of(cls, url: str, answer: requests.Response, total: int | None) -> _Version:
        tag = answer.headers.get("ETag")
        if not tag or tag.startswith("W/"):  # a weak one does not promise the same bytes
            tag = answer.headers.get("Last-Modified")
        return cls(url, tag or None, total)


def _held(part: Path, url: str) -> _Version | None:
    """The version of what was received before, if it can be continued."""
    try:
        version = _Version(**json.loads(_version_file(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return version if version.url == url and version.tag and part.is_file() and part.stat().st_size else None


def _receive(url: str, part: Path, progress: Progress, allowed: Callable[[str], None]) -> None:
    """Fetch what is missing of `part`."""
    held = _held(part, url)
    have = part.stat().st_size if held else 0
    if held and held.total == have:
        return
    headers = {"Accept-Encoding": "identity"}
    if held:
        headers |= {"Range": f"bytes={have}-", "If-Range": held.tag}
    with _Session() as session, _answer(session, url, headers, allowed) as answer:
        start, total = _position(answer, held, have)
        if start == 0:
            # First: of a process killed between the two, no old bytes may be found under the new name.
            part.unlink(missing_ok=True)
            write_json(_version_file(part), vars(_Version.of(url, answer, total)))
        if total is not None:
            _require_room(url, part, total, total - start)
        _write(answer, part, start, total, progress, url)


def _answer(session: requests.Session, url: str, headers: dict[str, str], allowed: Callable[[str], None]) -> requests.Response:
    """The answer of the last of the redirects, each of which must be allowed."""
    where = url
    for _ in range(REDIRECTS + 1):
        allowed(where)
        try:
            answer = session.get(where, headers=headers, stream=True, timeout=60, allow_redirects=False)
        except requests.RequestException as error:
            raise _TryAgain(type(error).__name__) from None
        if answer.is_redirect:
            answer.close()
            try:
                where = urljoin(where, answer.headers["Location"])
            except ValueError:
                raise DownloadError(f"cannot download {url}: redirected to {printable(answer.headers['Location'])}") from None
            continue
        if answer.status_code in (200, 206, 416):
            return answer
        answer.close()
        if answer.status_code in _AGAIN:
            raise _TryAgain(f"the server answers {answer.status_code}", _seconds(answer.headers.get("Retry-After")))
        raise DownloadError(f"cannot download {url}: the server answers {answer.status_code} {printable(answer.reason or '')}")
    raise DownloadError(f"cannot download {url}: more than {REDIRECTS} redirects")


def _seconds(retry_after: str | None) -> float | None:
    """Of the two forms of Retry-After: a number of seconds, or a date."""
    if retry_after is None or retry_after.isdecimal():
        return _number(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    """What a header counts; None where it is no number, or none that a file could have."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _position(answer: requests.Response, held: _Version | None, have: int) -> tuple[int, int | None]:
    """Where the answer's bytes begin in the file, and how long that is: 0 where the server sends it whole."""
    if answer.status_code == 200:
        return 0, _number(answer.headers.get("Content-Length"))
    span, _, length = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    total = _number(length)
    if answer.status_code == 416 or not span.startswith(f"{have}-"):
        # What is held is not a beginning of what the server has: begun again by the next try.
        raise _Stale
    if held is not None:
        # Many a server knows Range but not If-Range, and would continue another version of the file.
        tag = _Version.of(held.url, answer, total).tag
        if (tag or held.tag) != held.tag or (total or held.total) != (held.total or total):
            raise _Stale
        total = total or held.total
    return have, total


class _Stale(_TryAgain):
    def __init__(self) -> None:
        super().__init__("the server does not continue the file", 0.0)


def _require_room(url: str, part: Path, total: int, missing: int) -> None:
    if total > LARGEST:
        raise DataError(f"{url}: {total / 1e9:.0f} GB, more than the {LARGEST >> 30} GB that are downloaded")
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise StorageError(f"{part.parent}: {missing / 1e9:.1f} GB are to come, {free / 1e9:.1f} GB are free")


def _write(answer: requests.Response, part: Path, start: int, total: int | None, progress: Progress, url: str) -> None:
    done, shown = start, 0.0
    with part.open("ab" if start else "wb") as file:
        try:
            # Not unpacked: the file is what came, and servers call a .gz file "encoded" too.
            for chunk in answer.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                done += len(chunk)
                if done > LARGEST:
                    raise DataError(f"{url}: more than the {LARGEST >> 30} GB that are downloaded")
                if time.monotonic() - shown > 0.1:
                    progress(done, total)
                    shown = time.monotonic()
        except HTTPError:
            raise _TryAgain(f"the connection broke after {done:,} bytes") from None
    progress(done, total)
    if total is not None and done != total:
        raise _TryAgain(f"{done:,} of {total:,} bytes came")


def _verify(url: str, part: Path, sha256: str | None, md5: str | None) -> None:
    for kind, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        with part.open("rb") as file:
            found = hashlib.file_digest(file, lambda kind=kind: hashlib.new(kind, usedforsecurity=False)).hexdigest()
        if found != expected:
            part.unlink()
            _version_file(part).unlink(missing_ok=True)
            raise DataError(f"{url}: {kind} is {found}, the card says {expected}; what was received is deleted")
