"""Downloads against a real server that misbehaves on purpose: what is received, what is asked for again, what is refused."""

import gzip
import hashlib
import threading
import time
from email.utils import formatdate

import pytest

from rankbench.core.errors import DataError, StorageError
from rankbench.data import download as module
from rankbench.data.download import download, public_https

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
EXPECTED = {"sha256": SHA256}


@pytest.fixture
def server(file_server):
    file_server.content = CONTENT
    return file_server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "raw" / "data.zip"


def fetch(server, target, expected=None, **options):
    """Without the rule on hosts, which would refuse this server, and without waiting; returns the waits asked for."""
    waits = []
    download(server.url, target, expected or {}, allowed=lambda url: None, pause=waits.append, **options)
    return waits


def left(target):
    return sorted(path.name for path in target.parent.iterdir() if path.suffix != ".lock")


def test_a_file_is_fetched_checked_and_nothing_else_is_left(server, target):
    seen = []
    assert fetch(server, target, expected={"sha256": SHA256, "md5": MD5}, progress=lambda *step: seen.append(step)) == []
    assert target.read_bytes() == CONTENT
    assert left(target) == ["data.zip"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    fetch(server, target)
    assert len(server.requests) == 1  # what is there is not fetched again


@pytest.mark.parametrize("at", [1, 70_000, len(CONTENT) - 1])
def test_a_broken_connection_is_continued_where_it_broke(server, target, at):
    server.plan = [{"drops_after": at}, {}]
    assert len(fetch(server, target, expected=EXPECTED)) == 1
    first, second = server.ranges()
    kept = int((second or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    assert first is None and at - module.CHUNK < kept <= at
    assert target.read_bytes() == CONTENT


def test_a_later_process_continues_what_an_earlier_one_left(server, target):
    server.plan = [{"drops_after": 100_000}] * module.TRIES + [{}]
    with pytest.raises(DataError, match=r"cannot download .*\(5 tries\)"):
        fetch(server, target)
    assert left(target) == ["data.zip.part", "data.zip.part.json"]
    have = (target.parent / "data.zip.part").stat().st_size
    fetch(server, target, expected=EXPECTED)
    assert server.ranges()[-1] == f"bytes={have}-"
    assert target.read_bytes() == CONTENT and left(target) == ["data.zip"]


def test_another_version_of_the_file_is_begun_again(server, target):
    server.plan = [{"drops_after": 100_000}] * module.TRIES + [{}]
    with pytest.raises(DataError):
        fetch(server, target)
    server.tag, server.content = '"v2"', CONTENT[::-1]
    fetch(server, target)
    assert target.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("second", [{"ignores_range": True}, {"shifts_range": 5}, {"status": 416}])
def test_a_server_that_does_not_continue_is_asked_for_the_whole(server, target, second):
    server.plan = [{"drops_after": 100_000}, second, {}]
    fetch(server, target, expected=EXPECTED)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_file_that_is_not_there_is_said_at_once(server, target, status):
    server.plan = [{"status": status}]
    with pytest.raises(DataError, match=f"the server answers {status}"):
        fetch(server, target)
    assert len(server.requests) == 1


def test_less_than_was_announced_is_no_file(server, target):
    server.plan = [{"lies": 10}]
    with pytest.raises(DataError, match="tries"):
        fetch(server, target)
    assert not target.exists()


def test_a_length_is_not_needed(server, target):
    server.plan = [{"no_length": True}]
    seen = []
    fetch(server, target, expected=EXPECTED, progress=lambda *step: seen.append(step))
    assert seen[-1] == (len(CONTENT), None)


def test_two_at_once_download_once(server, target):
    threads = [threading.Thread(target=fetch, args=(server, target)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert target.read_bytes() == CONTENT and len(server.requests) == 1


def test_a_file_larger_than_the_disk_or_the_limit_is_refused_before_it_comes(server, target, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(StorageError, match=r"0\.0 GB are free"):
        fetch(server, target)
    monkeypatch.undo()
    monkeypatch.setattr(module, "LARGEST", 1000)
    with pytest.raises(DataError, match="more than the"):
        fetch(server, target)
    server.plan = [{"no_length": True}]
    with pytest.raises(DataError, match="more than the"):
        fetch(server, target)
    assert not target.exists()


def test_redirects_are_followed_each_asked_for_and_not_without_end(server, target):
    asked = []
    server.plan = [{"status": 302, "headers": {"Location": "/elsewhere"}}, {}]
    download(server.url, target, {}, allowed=asked.append, pause=lambda seconds: None)
    assert asked == [server.url, server.url.replace("data.zip", "elsewhere")]
    target.unlink()
    server.plan = [{"status": 301, "headers": {"Location": "/again"}}]
    with pytest.raises(DataError, match="more than 5 redirects"):
        fetch(server, target)


@pytest.mark.parametrize(("tag", "content"), [('"v2"', CONTENT[::-1]), ('"v1"', CONTENT[::-1] + b"more")])
def test_versions_are_not_mixed_where_the_server_does_not_tell_them_apart(server, target, tag, content):
    class WithoutIfRange(server.RequestHandlerClass):
        def do_GET(self):
            del self.headers["If-Range"]
            super().do_GET()

    server.RequestHandlerClass = WithoutIfRange
    server.plan = [{"drops_after": 100_000}, {}]
    download(server.url, target, {}, allowed=lambda url: None, pause=lambda seconds: replace_file(server, tag, content))
    assert server.ranges()[1] is not None
    assert target.read_bytes() == content


def replace_file(server, tag, content):
    server.tag, server.content = tag, content


def test_a_weak_name_is_no_promise_but_a_date_is(server, target):
    asked = []

    class Dated(server.RequestHandlerClass):
        dates = False

        def do_GET(self):
            asked.append(self.headers.get("If-Range"))
            del self.headers["If-Range"]
            super().do_GET()

        def end_headers(self):
            if self.dates:
                self.send_header("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
            super().end_headers()

    server.RequestHandlerClass, server.tag = Dated, 'W/"v1"'
    server.plan = [{"drops_after": 100_000}, {}, {"drops_after": 100_000}, {}]
    fetch(server, target, expected=EXPECTED)
    assert server.ranges() == [None, None]
    target.unlink()
    Dated.dates = True
    fetch(server, target, expected=EXPECTED)
    assert asked[2:] == [None, "Wed, 01 Jan 2020 00:00:00 GMT"] and server.ranges()[3] is not None


@pytest.mark.parametrize("coding", ["gzip", "x-gzip"])
def test_a_packed_file_stays_packed(server, target, coding):
    class Encoded(server.RequestHandlerClass):
        def end_headers(self):
            self.send_header("Content-Encoding", coding)
            super().end_headers()

    server.RequestHandlerClass, server.content = Encoded, gzip.compress(CONTENT)
    assert fetch(server, target) == []
    assert target.read_bytes() == server.content


def test_old_bytes_never_lie_under_a_new_name(server, target, monkeypatch):
    server.plan = [{"drops_after": 100_000}] * module.TRIES + [{}]
    with pytest.raises(DataError):
        fetch(server, target)

    def killed(path, version):
        assert version["tag"] == '"v2"' and not target.with_name("data.zip.part").exists()
        raise KeyboardInterrupt

    server.tag = '"v2"'
    monkeypatch.setattr(module, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        fetch(server, target)


def test_a_length_that_no_file_has_is_no_length(server, target):
    class Endless(server.RequestHandlerClass):
        def send_header(self, name, value):
            super().send_header(name, "9" * 5000 if name == "Content-Length" else value)

    server.RequestHandlerClass = Endless
    fetch(server, target, expected=EXPECTED)
    assert target.read_bytes() == CONTENT


def test_the_page_of_a_redirect_is_not_read(server, target):
    sent = []

    class Chatty(server.RequestHandlerClass):
        def do_GET(self):
            if self.path == "/next":
                super().do_GET()
                return
            self.send_response(302)
            self.send_header("Location", "/next")
            self.send_header("Content-Length", str(64 << 20))
            self.end_headers()
            try:
                for _ in range(64):
                    self.wfile.write(bytes(1 << 20))
                    sent.append(1)
            except OSError:
                self.close_connection = True

    server.RequestHandlerClass = Chatty
    fetch(server, target, expected=EXPECTED)
    assert len(sent) < 32  # MB; what the sockets hold, not what the server has to say


def test_a_name_is_looked_for_again_when_the_network_was_there_before(server, target):
    server.plan = [{"drops_after": 100_000}, {}]
    visits = iter([None, module._NotFound("gone"), None])

    def allowed(url):
        if problem := next(visits):
            raise problem

    waits = []
    download(server.url, target, EXPECTED, allowed=allowed, pause=waits.append)
    assert waits == [2.0, 4.0]
    target.unlink()
    visits = iter([module._NotFound("no such host")])
    with pytest.raises(DataError, match="no such host"):
        download(server.url, target, {}, allowed=allowed, pause=waits.append)
    assert waits == [2.0, 4.0]


def test_words_of_the_server_do_not_steer_the_terminal(server, target):
    class Painted(server.RequestHandlerClass):
        def send_response(self, code, message=None):
            super().send_response(404, "\x1b[31mnot here")

    server.RequestHandlerClass = Painted
    with pytest.raises(DataError, match=r"404 \\x1b\[31mnot here"):
        fetch(server, target)


def test_a_busy_server_is_asked_again_when_it_says_but_soon(server, target):
    tomorrow = formatdate(time.time() + 86400, usegmt=True)
    says = ["7", None, "86400", tomorrow]
    answers = zip((429, 500, 503, 503), says, strict=True)
    server.plan = [{"status": status, "headers": {"Retry-After": wait} if wait else {}} for status, wait in answers] + [{}]
    assert fetch(server, target, expected=EXPECTED) == [7, 4.0, module.LONGEST_WAIT, module.LONGEST_WAIT]
    target.unlink()
    server.requests.clear()
    server.plan = [{"status": 503, "headers": {"Retry-After": "soon"}}, {}]
    assert fetch(server, target) == [2.0]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("http://169.254.169.254/latest", "only https"),
        ("https://169.254.169.254/latest", "leads to 169.254.169.254, which is not a public address"),
        ("https://[::1", "redirected to"),
        ("https://host:99999/", "out of range"),
        ("ftp://\x1b[31m/x", "redirected to ftp"),
    ],
)
def test_a_redirect_to_where_it_may_not_go_is_one_line_and_not_followed(server, target, where, message):
    def allowed(url):
        if url != server.url:
            public_https(url)

    server.plan = [{"status": 302, "headers": {"Location": where}}]
    with pytest.raises(DataError, match=message) as caught:
        download(server.url, target, {}, allowed=allowed, pause=lambda seconds: None)
    assert len(server.requests) == 1 and str(caught.value).isprintable()


PRIVATE = (
    *("127.0.0.1", "[::1]", "10.1.2.3", "192.168.0.1", "169.254.169.254", "[fe80::1]", "localhost", "100.64.0.1", "224.0.0.1"),
    *("[ff02::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:a00:1::]"),
)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        *((f"https://{host}/x", "not a public address") for host in PRIVATE),
        *((url, "only https") for url in ("http://example.org/x", "file:///etc/passwd", "https:///x")),
        ("https://1.1.1.1:99999/x", "out of range"),
        ("https://[::1", "Invalid IPv6"),
        ("https://" + "a" * 70 + ".org/x", "host name is not valid"),
    ],
)
def test_only_https_to_a_public_address_is_allowed(url, message):
    with pytest.raises(DataError, match=message):
        public_https(url)


def test_a_public_address_is_allowed():
    for host in ("1.1.1.1", "[2606:4700::1111]", "[64:ff9b::101:101]"):
        public_https(f"https://{host}/x")
