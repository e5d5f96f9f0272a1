"""Folders in a store and their copies: complete or not at all, and checked."""

import json

import pytest

from rankbench.core.errors import DataError
from rankbench.core.replica import CHECKSUMS, is_copy_of, pull, push
from rankbench.core.storage import Storage


@pytest.fixture
def stored(s3, tmp_path):
    """A store with a folder below the key `k`."""
    (tmp_path / "made" / "sub").mkdir(parents=True)
    (tmp_path / "made" / "a.bin").write_bytes(b"abc")
    (tmp_path / "made" / "sub" / "b.bin").write_bytes(b"")
    store = Storage.from_env(s3, "here")
    push(tmp_path / "made", store, "k")
    return store


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_has_the_files_and_their_checksums(stored, tmp_path):
    assert pull(stored, "k", tmp_path / "copy")
    assert files(tmp_path / "copy") == files(tmp_path / "made") and len(files(tmp_path / "copy")) == 3
    assert is_copy_of(tmp_path / "copy", stored, "k") and not is_copy_of(tmp_path / "copy", stored, "other")
    assert not is_copy_of(tmp_path / "none", stored, "k")


def test_a_folder_without_checksums_is_not_there_yet(stored, tmp_path):
    stored.remove(f"k/{CHECKSUMS}")
    assert not pull(stored, "k", tmp_path / "copy") and not (tmp_path / "copy").exists()


def test_a_damaged_file_leaves_no_copy(stored, tmp_path):
    stored.write("k/a.bin", b"abd")
    with pytest.raises(DataError, match=r"/k/a\.bin: damaged"):
        pull(stored, "k", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    "content", [b"[]", b"no json", b'{"stored": "x"}', json.dumps({"stored": "", "sha256": {"../a": "0"}}).encode()]
)
def test_checksums_of_something_else_are_refused(stored, tmp_path, content):
    stored.write(f"k/{CHECKSUMS}", content)
    with pytest.raises(DataError, match=rf"/k/{CHECKSUMS}: "):
        pull(stored, "k", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
