"""Objects of a store: written whole, listed at once, and errors of one line."""

import http.server
import threading
from types import SimpleNamespace
from typing import ClassVar

import pytest

from rankbench.core import storage
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, StorageError
from rankbench.core.storage import Storage


def test_what_was_written_is_read_listed_and_removed(s3, tmp_path):
    store = Storage.from_env(f"{s3}/some/prefix", "RANKBENCH_RESULTS")
    assert store.read("a/b") is None and store.names() == [] and store.objects("a") == []
    (tmp_path / "file").write_bytes(bytes(range(256)) * 40_000)  # larger than a chunk
    store.upload("a/b", tmp_path / "file")
    store.write("a/c/d", b"")
    store.write("a/b2", b"old")
    store.write("a/b2", b"new")
    store.download("a/b", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "file").read_bytes() == store.read("a/b")
    assert store.read("a/c/d") == b"" and store.read("a/b2") == b"new"
    assert store.objects() == ["a/b", "a/b2", "a/c/d"] and store.objects("a/c") == ["a/c/d"]
    assert store.names("a") == ["b", "b2", "c"] and store.below("a").names("c") == ["d"]
    assert Storage.from_env(s3, "RANKBENCH_DATA").objects() == ["some/prefix/a/b", "some/prefix/a/b2", "some/prefix/a/c/d"]
    for key in ("a/b2", "a/b2", "never"):
        store.remove(key)
    assert store.names("a") == ["b", "c"]
    store.require_writable()
    assert store.objects() == ["a/b", "a/c/d"]


def test_a_missing_object_or_bucket_is_named(s3, tmp_path):
    with pytest.raises(StorageError, match=rf"^{s3}/x/nothing: no such object$"):
        Storage.from_env(f"{s3}/x", "here").download("nothing", tmp_path / "copy")
    with pytest.raises(StorageError, match=r"^s3://no-such-bucket/x/.*: there is no such bucket; create it first$"):
        Storage.from_env("s3://no-such-bucket/x", "here").require_writable()


def test_a_store_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(storage, "LIMIT", 0.0)
    store = Storage("s3://bucket", "http://127.0.0.1:1", "us-east-1")
    with pytest.raises(StorageError, match="does not answer, or not to the end; check AWS_ENDPOINT_URL"):
        store.read("key")


@pytest.mark.parametrize(
    "uri", ["s3://", "s3://B", "s3:///x", "s3://bucket//x", "s3://bucket/../x", "s3://bu_cket", "s3://bucket"]
)
def test_an_address_or_endpoint_that_cannot_work_is_refused(uri, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    endpoint = r"AWS_ENDPOINT_URL=localhost:9000: expected http\(s\)://HOST:PORT"
    with pytest.raises(
        ConfigError, match=endpoint if uri == "s3://bucket" else "RANKBENCH_DATA=.*: expected s3://BUCKET/PREFIX"
    ):
        Storage.from_env(uri, "RANKBENCH_DATA")


def test_a_store_pickles_without_secrets(s3):
    import pickle

    store = Storage.from_env(s3, "here")
    store.names()  # connected
    assert pickle.loads(pickle.dumps(store)) == store and b"tests" not in pickle.dumps(store)


class _Failing(http.server.BaseHTTPRequestHandler):
    """A store with one object, whose next answers to GET fail as `failures` says: a status, or "cut" for half of the object."""

    failures: ClassVar[list] = []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer(200, b"x" * 10)

    def do_GET(self):
        failure = self.failures.pop() if self.failures else 200
        self._answer(200 if failure == "cut" else failure, b"x" * 10, 5 if failure == "cut" else 10)

    def _answer(self, status, content, n_sent=10):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:n_sent])
        self.close_connection = True


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setattr(_Failing, "failures", [])
    monkeypatch.setattr(storage, "_TRIES", 1)  # the client itself would wait between two
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Storage("s3://bucket/x", f"http://127.0.0.1:{server.server_address[1]}", "us-east-1")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("failure", [500, 507, "cut"])
def test_a_failure_that_passes_is_asked_again(failure, failing, monkeypatch):
    monkeypatch.setattr(storage, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    _Failing.failures += [failure] * 4
    assert failing.read("key") == b"x" * 10 and not _Failing.failures


@pytest.mark.parametrize("failure", [500, "cut"])
def test_a_store_that_never_answers_to_the_end_is_given_up_after_the_limit(failure, failing, monkeypatch):
    """The clock is that of the test: each pause lasts as long as it says, and nothing is waited for."""
    now = [0.0]
    monkeypatch.setattr(
        storage, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    )
    for answered, limit in ((False, storage.LIMIT), (True, storage.PATIENT_LIMIT)):
        _Failing.failures[:] = [failure] * 200
        monkeypatch.setattr(storage, "_answered", {failing._place} if answered else set())
        before = now[0]
        with pytest.raises(StorageError, match=r"^s3://bucket/x/key: .* \(tried for \d+ s\)$"):
            failing.read("key")
        assert limit / 2 < now[0] - before < limit


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [("s3://me:sesame@bucket/x", None), ("s3://bucket", "http://me:sesame@host:9000"), ("gs://me:sesame@bucket", None)],
)
def test_keys_in_an_address_are_refused_and_not_repeated(uri, endpoint, monkeypatch):
    for name, value in (("RANKBENCH_DATA", uri), ("AWS_ENDPOINT_URL", endpoint or "")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"://\*\*\*@.*: expected ") as refused:
        Environment.from_env()
    assert "sesame" not in str(refused.value) and "me:" not in str(refused.value)
