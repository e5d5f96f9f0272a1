"""Hide the secrets in the address of a store and in the errors that libraries raise about it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TextIO
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus, urlsplit

HIDDEN = "***"
DELIMITERS = "[@:/?#&=]"  # each may end a part of an address
SHORT = 4  # a shorter secret is hidden only as a whole word, since it may be a part of many words


def without_password(uri: str) -> str:
    """Return `uri` without its secrets, or only the scheme if the address can be parsed in more than one way.

    The user name of a database is kept if there is a password. Any other account may be a token and is hidden, and so is
    the query.
    """
    scheme, _ = _split(uri)
    if not scheme:
        return HIDDEN
    visible = _visible(uri)
    return f"{scheme}://{HIDDEN if visible is None else _pattern(uri).sub(HIDDEN, visible)}"


def redacted(text: str, uri: str) -> str:
    """Return `text` without the secrets of `uri`, however they are quoted."""
    return _pattern(uri).sub(HIDDEN, text.replace(uri, without_password(uri)))


def reason(error: BaseException, uri: str) -> str:
    """Return why the store at `uri` failed, in a few words and without the secrets of its address."""
    current: BaseException | None = error
    causes: list[BaseException] = []
    while current is not None and len(causes) < 20:
        causes.append(current)
        # urllib3 keeps the cause in an attribute of its own, requests in its first argument.
        inner = getattr(current, "reason", None) or next(iter(current.args), None)
        current = current.__cause__ or (inner if isinstance(inner, BaseException) else current.__context__)
    for each in causes:
        if isinstance(each, TimeoutError) or "timeout" in type(each).__name__.lower():
            return "no answer in time"
    for each in causes:
        if isinstance(each, OSError) and each.strerror:
            return redacted(each.strerror + (f": {each.filename}" if each.filename else ""), uri)
    # The innermost error is the shortest: "database is locked", "too many 500 error responses".
    innermost = next((each for each in reversed(causes) if str(each).strip()), error)
    # A password may contain a line break, so secrets are hidden before the text is cut.
    return (redacted(str(innermost), uri).strip().splitlines() or [type(error).__name__])[0][:200]


class RedactedStream(io.TextIOBase):
    """A text stream for the logs of libraries, which passes text on to `stream` without the secrets of `uri`."""

    def __init__(self, stream: TextIO, uri: str):
        self._stream, self._uri = stream, uri

    def write(self, text: str) -> int:
        self._stream.write(redacted(text, self._uri))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def _split(uri: str) -> tuple[str, str]:
    """Return the scheme, empty if there is none, and what follows it."""
    scheme, separator, rest = uri.partition("://")
    return (scheme, rest) if separator and re.fullmatch(r"[A-Za-z][\w+.-]*", scheme) else ("", uri)


def _visible(uri: str) -> str | None:
    """Return what follows the scheme without the secrets; None if programs may parse the address in different ways."""
    scheme, rest = _split(uri)
    if scheme in ("http", "https", "s3"):
        return _visible_of_server(uri)
    if _is_sqlite(scheme) and rest.startswith("/"):
        # All of it is a path: an @ does not start a host.
        path, query, _ = rest.partition("?")
        return path + (f"?{HIDDEN}" if query else "")
    try:
        from sqlalchemy.engine import URL, make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        return None  # without MLflow, which brings it, there is no database

    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        return None
    if "@" in f"{url.host}{url.database}":
        return None
    account = "" if url.username is None and url.password is None else f"{HIDDEN}@"
    if url.password and _keeps_user(scheme):
        account = f"{quote(url.username or '', safe='')}:{account}"
    location = URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()
    return account + location.partition("://")[2] + (f"?{HIDDEN}" if url.query else "")


def _visible_of_server(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    except ValueError:
        return None
    account, _, location = parts.netloc.rpartition("@")
    # A slash in a password ends the host part too early, and the start of the password looks like the host.
    doubtful = "@" in parts.path + parts.query + parts.fragment or re.search(r"[\s\\]", uri)
    if not host or doubtful:
        return None
    query, fragment = (f"{mark}{HIDDEN}" if part else "" for mark, part in (("?", parts.query), ("#", parts.fragment)))
    return (f"{HIDDEN}@" if account else "") + location + parts.path + query + fragment


def _is_sqlite(scheme: str) -> bool:
    return scheme.partition("+")[0] == "sqlite"


def _keeps_user(scheme: str) -> bool:
    return scheme.partition("+")[0] in ("postgresql", "postgres", "mysql", "mssql")


@lru_cache(maxsize=16)
def _pattern(uri: str) -> re.Pattern[str]:
    """Return a pattern that matches every form of every secret of `uri`, and nothing if there is none."""
    forms = {form for secret in _secrets(uri) for form in _forms(secret) if form.strip("* ")}
    words = [
        re.escape(form) if len(form) >= SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.compile("|".join(words) or r"(?!)", re.IGNORECASE)


def _secrets(uri: str) -> Iterator[str]:
    """Yield the parts of `uri` that must not be shown, as they are written in it."""
    scheme, rest = _split(uri)
    if _is_sqlite(scheme) and rest.startswith("/"):
        account, tail = "", rest
    else:
        account, _, tail = rest.rpartition("@")
    user, _, password = account.partition(":")
    yield from (account, password)
    if not (password and _keeps_user(scheme)):
        yield user
    query = tail.partition("?")[2].partition("#")[0]
    yield from (query, tail.partition("#")[2])
    yield from (value for _, value in parse_qsl(query, keep_blank_values=True))
    for part in query.split("&"):
        key, equals, _ = part.partition("=")
        # A key such as "password" is not secret and appears in many error messages.
        yield "" if equals and re.fullmatch("[a-z_]+", key) else key
    # A value may contain the characters that end it, so it is hidden up to each of them and beyond.
    after = tail.partition("?")[2]
    yield from _spans(after, [0, *(match.end() for match in re.finditer("[=#]", after))], "[&#]")
    if scheme in ("http", "https"):
        # The form in which it is sent, and which a server may send back.
        yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode() if account else ""
    if not scheme or _visible(uri) is None or "?" in account or (":" in password and not _keeps_user(scheme)):
        # Another program may take any of these for a host, a port or a folder, and show it in an error.
        yield from _spans(rest, [0, *(match.end() for match in re.finditer(DELIMITERS, rest))], DELIMITERS)


def _spans(text: str, starts: list[int], end: str) -> Iterator[str]:
    """Yield the parts of `text` from each of `starts` to each later match of `end`, and to the end of the text."""
    ends = [*(match.start() for match in re.finditer(end, text)), len(text)]
    yield from (text[start:stop] for start in starts for stop in ends if start < stop)


def _forms(secret: str) -> Iterator[str]:
    for text in {secret, unquote(secret), unquote_plus(secret)}:
        yield from (text, quote(text, safe=""), quote(text), quote_plus(text), repr(text)[1:-1], json.dumps(text)[1:-1])
