"""Objects of a store: written whole, listed at once, and errors of one line."""

import pytest

from rankbench.core import storage
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
    monkeypatch.setattr(storage, "_TRIES", 1)
    store = Storage("s3://bucket", "http://127.0.0.1:1", "us-east-1")
    with pytest.raises(StorageError, match="does not answer; check AWS_ENDPOINT_URL"):
        store.read("key")


@pytest.mark.parametrize("uri", ["s3://", "s3://B", "s3:///x", "s3://bucket//x", "s3://bucket/../x", "s3://bu_cket"])
def test_an_address_that_cannot_work_is_refused(uri):
    with pytest.raises(ConfigError, match=r"RANKBENCH_DATA=.*: expected s3://BUCKET/PREFIX"):
        Storage.from_env(uri, "RANKBENCH_DATA")


def test_an_endpoint_that_cannot_work_is_refused(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(ConfigError, match=r"AWS_ENDPOINT_URL=localhost:9000: expected http\(s\)://HOST:PORT"):
        Storage.from_env("s3://bucket", "RANKBENCH_DATA")


def test_a_store_pickles_without_secrets(s3):
    import pickle

    store = Storage.from_env(s3, "here")
    store.names()  # connected
    assert pickle.loads(pickle.dumps(store)) == store and b"tests" not in pickle.dumps(store)
