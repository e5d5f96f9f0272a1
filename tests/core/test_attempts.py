"""A writer that another one has replaced publishes nothing, wherever it was frozen."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankbench.core import attempts
from rankbench.core.attempts import FolderAttempt, StoredAttempt, Superseded
from rankbench.core.errors import StorageError
from rankbench.core.files import atomic_file, atomic_folder, write_text
from rankbench.core.storage import Storage


def test_a_number_in_a_folder_is_given_once(tmp_path):
    with ThreadPoolExecutor(4) as writers:
        claims = writers.map(lambda _: FolderAttempt.claim(tmp_path, "it"), range(60))
        assert sorted(claim.number for claim in claims) == [*range(1, 61)]


def test_a_claim_that_a_full_disk_interrupts_supersedes_nothing(tmp_path, monkeypatch):
    first = FolderAttempt.claim(tmp_path, "it")

    def full():
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(attempts, "_about", full)
    with pytest.raises(StorageError):
        FolderAttempt.claim(tmp_path, "it")
    assert first.is_newest


def test_of_simultaneous_claims_in_a_store_one_is_the_newest(s3):
    store = Storage.from_env(s3, "here")
    with ThreadPoolExecutor(6) as writers:
        claims = [*writers.map(lambda _: StoredAttempt.claim(store, "it", "it"), range(6))]
    assert len({claim.name for claim in claims}) == 6 and sum(claim.is_newest for claim in claims) == 1
    later = StoredAttempt.claim(store, "it", "it")
    assert later.is_newest and not any(claim.is_newest for claim in claims) and all(later.name > claim.name for claim in claims)
    with pytest.raises(Superseded, match=rf"^it: process {os.getpid()} on .* has taken it over at 20"):
        claims[0].require_newest()


@pytest.mark.parametrize("frozen", ["before its scratch", "in its scratch", "before the rename"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_old_writer_changes_nothing_wherever_it_was_frozen(tmp_path, kind, frozen, monkeypatch):
    target = tmp_path / "there" / "target"

    def publish(attempt, text, during=lambda: None):
        if kind == "file":
            with atomic_file(target, attempt) as scratch:
                scratch.write_text(text)
                during()
        else:
            with atomic_folder(target, replace=True, fence=attempt) as scratch:
                (scratch / "file").write_text(text)
                during()

    def replaced():
        newer = FolderAttempt.claim(tmp_path / "attempts", "it", [target])
        publish(newer, "new")

    old = FolderAttempt.claim(tmp_path / "attempts", "it", [target])
    publish(old, "first")
    if frozen == "before its scratch":
        replaced()
    if frozen == "before the rename":
        # It looked, was the newest, and is frozen between that and the rename.
        newest, looked = FolderAttempt.require_newest, []

        def look_then_freeze(self):
            newest(self)
            if self is old and not looked:
                looked.append(True)
                replaced()

        monkeypatch.setattr(FolderAttempt, "require_newest", look_then_freeze)
    with pytest.raises(Superseded, match="attempt 2; this was attempt 1"):
        publish(old, "late", replaced if frozen == "in its scratch" else lambda: None)
    text = (target if kind == "file" else target / "file").read_text()
    assert text == "new" and [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_claim_leaves_the_scratch_of_others_alone(tmp_path):
    target, other = tmp_path / "run-1", tmp_path / "run-1-b"
    other_attempt = FolderAttempt.claim(tmp_path / "attempts-b", "other")
    with atomic_folder(other, fence=other_attempt) as scratch:
        (scratch / "file").touch()
        FolderAttempt.claim(tmp_path / "attempts", "it", [target])
        FolderAttempt.claim(tmp_path / "attempts", "it", [target])
    assert (other / "file").exists()


def test_a_missing_file_in_a_scratch_folder_is_no_new_attempt(tmp_path):
    attempt = FolderAttempt.claim(tmp_path / "attempts", "it")
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "target", fence=attempt) as scratch:
        (scratch / "nothing").read_text()
    write_text(tmp_path / "file", "text", attempt)
