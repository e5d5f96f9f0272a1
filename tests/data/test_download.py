"""Downloads against a real server that misbehaves on purpose: what is received, what is asked for again, what is refused."""

import hashlib
import threading

import pytest

from rankbench.data import download as module
from rankbench.data.download import download, public_https
from rankbench.errors import DataError, StorageError

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server(file_server):
    file_server.content = CONTENT
    return file_server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "raw" / "data.zip"


def fetch(server, target, **checks):
    """Without the rule on hosts, which would refuse this server, and without waiting; returns the waits asked for."""
    waits = []
    download(server.url, target, allowed=lambda url: None, pause=waits.append, **checks)
    return waits


def left(target):
    return sorted(path.name for path in target.parent.iterdir() if path.suffix != ".lock")


def test_a_file_is_fetched_checked_and_nothing_else_is_left(server, target):
    seen = []
    assert fetch(server, target, sha256=SHA256, md5=MD5, progress=lambda *step: seen.append(step)) == []
    assert target.read_bytes() == CONTENT
    assert left(target) == ["data.zip"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    fetch(server, target)
    assert len(server.requests) == 1  # what is there is not fetched again


@pytest.mark.parametrize("at", [1, 70_000, len(CONTENT) - 1])
def test_a_broken_connection_is_continued_where_it_broke(server, target, at):
    server.plan = [{"drops_after": at}, {}]
    assert len(fetch(server, target, sha256=SHA256)) == 1
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
    fetch(server, target, sha256=SHA256)
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
    fetch(server, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(server, target, status):
    server.plan = [{"status": status, "headers": {"Retry-After": "7"}}, {"status": status}, {}]
    assert fetch(server, target, sha256=SHA256) == [7, 4.0]


def test_no_server_makes_us_wait_for_long(server, target):
    server.plan = [{"status": 503, "headers": {"Retry-After": "86400"}}, {}]
    assert fetch(server, target) == [module.LONGEST_WAIT]


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
    fetch(server, target, sha256=SHA256, progress=lambda *step: seen.append(step))
    assert seen[-1] == (len(CONTENT), None)


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_checksum_is_named_and_the_file_deleted(server, target, kind):
    digest = {"sha256": SHA256, "md5": MD5}[kind]
    with pytest.raises(DataError, match=rf"data\.zip: {kind} is {digest}, the card says 0+"):
        fetch(server, target, **{kind: "0" * len(digest)})
    assert "data.zip" not in left(target) and "data.zip.part" not in left(target)


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
    download(server.url, target, allowed=asked.append, pause=lambda seconds: None)
    assert asked == [server.url, server.url.replace("data.zip", "elsewhere")]
    target.unlink()
    server.plan = [{"status": 301, "headers": {"Location": "/again"}}]
    with pytest.raises(DataError, match="more than 5 redirects"):
        fetch(server, target)


def test_a_redirect_to_where_it_may_not_go_is_not_followed(server, target):
    server.plan = [{"status": 302, "headers": {"Location": "http://169.254.169.254/latest/meta-data"}}]

    def allowed(url):
        if "169.254" in url:
            public_https(url.replace("http:", "https:"))

    with pytest.raises(DataError, match=r"leads to 169\.254\.169\.254, which is no public address"):
        download(server.url, target, allowed=allowed, pause=lambda seconds: None)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/x", "only https"),
        ("file:///etc/passwd", "only https"),
        ("https:///x", "only https"),
        ("https://127.0.0.1/x", "no public address"),
        ("https://[::1]/x", "no public address"),
        ("https://10.1.2.3/x", "no public address"),
        ("https://192.168.0.1/x", "no public address"),
        ("https://169.254.169.254/x", "no public address"),
        ("https://[fe80::1]/x", "no public address"),
        ("https://localhost/x", "no public address"),
    ],
)
def test_only_https_to_a_public_address_is_allowed(url, message):
    with pytest.raises(DataError, match=message):
        public_https(url)


def test_a_public_address_is_allowed():
    public_https("https://1.1.1.1/x")
