"""A file from the internet: resumed, tried again, verified, and never fetched from where no dataset lies.

`<target>.part` grows beside the target and becomes it when whole and checked; `<target>.part.json` keeps what the server
calls this version of the file, so that a later try goes on only with the same one.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from filelock import FileLock

from rankbench.errors import DataError, StorageError
from rankbench.files import disk_errors_are_clear, make_folder, write_json

TRIES = 5
LONGEST_WAIT = 60  # seconds between two tries, whatever the server asks for
REDIRECTS = 5
LARGEST = 50 << 30  # bytes; no dataset here comes near
CHUNK = 1 << 16  # bytes; as much as a broken connection may lose
_AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers that another try may turn into the file

Progress = Callable[[int, int | None], None]


class _TryAgain(Exception):
    """The connection or the server failed for now; `wait`: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


def public_https(url: str) -> None:
    """Raise DataError unless `url` is https on a host whose addresses are all public."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DataError(f"{url}: only https:// is downloaded")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise DataError(
            f"cannot download {url}: {parts.hostname} is not found ({error.strerror}); is there a network?"
        ) from None
    for *_, address in found:
        if not ipaddress.ip_address(address[0].partition("%")[0]).is_global:
            raise DataError(f"{url}: leads to {address[0]}, which is no public address")


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
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.is_file():
            return
        with disk_errors_are_clear(target):
            for attempt in range(1, TRIES + 1):
                try:
                    _receive(url, part, progress, allowed)
                    break
                except _TryAgain as error:
                    if isinstance(error, _Stale):
                        part.unlink(missing_ok=True)
                    if attempt == TRIES:
                        raise DataError(f"cannot download {url}: {error} ({TRIES} tries)") from None
                    pause(min(LONGEST_WAIT, 2.0**attempt if error.wait is None else error.wait))
            _verify(url, part, sha256, md5)
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
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        return cls(url, tag if tag and not tag.startswith("W/") else None, total)


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
    with requests.Session() as session:
        session.trust_env = True  # proxies of the environment
        with _answer(session, url, headers, allowed) as answer:
            start, total = _position(answer, have if held else 0)
            if total is not None:
                _require_room(url, part, total - start)
            if start == 0:
                write_json(_version_file(part), vars(_Version.of(url, answer, total)))
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
            where = urljoin(where, answer.headers["Location"])
            answer.close()
            continue
        if answer.status_code in (200, 206, 416):
            return answer
        answer.close()
        if answer.status_code in _AGAIN:
            raise _TryAgain(f"the server answers {answer.status_code}", _seconds(answer.headers.get("Retry-After")))
        raise DataError(f"cannot download {url}: the server answers {answer.status_code} {answer.reason}")
    raise DataError(f"cannot download {url}: more than {REDIRECTS} redirects")


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None


def _position(answer: requests.Response, have: int) -> tuple[int, int | None]:
    """Where the answer's bytes begin in the file, and how long that is: 0 where the server sends it whole."""
    length = answer.headers.get("Content-Length", "")
    if answer.status_code == 200:
        return 0, int(length) if length.isdecimal() else None
    span, _, total = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    if answer.status_code == 416 or not span.startswith(f"{have}-"):
        # What is held is not a beginning of what the server has: begun again by the next try.
        raise _Stale
    return have, int(total) if total.isdecimal() else None


class _Stale(_TryAgain):
    def __init__(self) -> None:
        super().__init__("the server does not continue the file", 0.0)


def _require_room(url: str, part: Path, missing: int) -> None:
    if missing > LARGEST:
        raise DataError(f"{url}: {missing / 1e9:.0f} GB, more than the {LARGEST >> 30} GB that are downloaded")
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise StorageError(f"{part.parent}: {missing / 1e9:.1f} GB are to come, {free / 1e9:.1f} GB are free")


def _write(answer: Any, part: Path, start: int, total: int | None, progress: Progress, url: str) -> None:
    done, shown = start, 0.0
    with part.open("ab" if start else "wb") as file:
        try:
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if done > LARGEST:
                    raise DataError(f"{url}: more than the {LARGEST >> 30} GB that are downloaded")
                if time.monotonic() - shown > 0.1:
                    progress(done, total)
                    shown = time.monotonic()
        except requests.RequestException as error:
            raise _TryAgain(f"{type(error).__name__} after {done:,} bytes") from None
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
