"""Outputs appear whole or not at all, however their making ends."""

import ctypes
import errno
import fcntl
import json
import math
import os
import threading
import time
from pathlib import Path

import pytest

from rankbench.core.errors import StorageError
from rankbench.core.files import ABANDONED, SCRATCH, _sweep_abandoned, atomic_file, atomic_folder, write_json


def test_a_folder_appears_whole(tmp_path):
    target = tmp_path / "deep" / "made"
    with atomic_folder(target) as scratch:
        (scratch / "a" / "b").mkdir(parents=True)
        (scratch / "a" / "b" / "x.txt").write_text("x")
        assert not target.exists()
        # Beside the target, so that the rename never crosses a file system.
        assert scratch.parent == target.parent
    assert (target / "a" / "b" / "x.txt").read_text() == "x"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_a_failure_leaves_no_folder(error, tmp_path):
    with pytest.raises(type(error)), atomic_folder(tmp_path / "made") as scratch:
        (scratch / "half.txt").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_of_a_folder_the_first_is_kept(tmp_path):
    target = tmp_path / "made"
    with atomic_folder(target) as slow:
        (slow / "by.txt").write_text("slow")
        with atomic_folder(target) as fast:
            (fast / "by.txt").write_text("fast")
    assert (target / "by.txt").read_text() == "fast"
    assert list(tmp_path.iterdir()) == [target]


def test_many_writers_leave_one_whole_folder(tmp_path):
    target, start = tmp_path / "made", threading.Barrier(8)

    def make(writer: int) -> None:
        start.wait()
        with atomic_folder(target) as scratch:
            for n in range(5):
                (scratch / f"{n}.txt").write_text(str(writer))

    threads = [threading.Thread(target=make, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == [target]
    assert len(list(target.iterdir())) == 5
    assert len({path.read_text() for path in target.iterdir()}) == 1


def test_a_file_is_replaced_whole(tmp_path):
    target = tmp_path / "deep" / "x.csv"
    for text in ("first", "second"):
        before = target.read_text() if target.exists() else None
        with atomic_file(target) as scratch:
            assert scratch.suffix == ".csv"  # some writers choose their format by it
            scratch.write_text(text)
            assert (target.read_text() if target.exists() else None) == before
        assert target.read_text() == text
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_the_old_file(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(ValueError), atomic_file(target) as scratch:
        scratch.write_text("ne")
        raise ValueError("broken")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_move_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """There is no moment at which the old file is gone and the new one not there."""
    target = tmp_path / "x.txt"
    target.write_text("old")

    def refuse(self, target):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError), atomic_file(target) as scratch:
        scratch.write_text("new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_writer_that_writes_nothing_is_an_error_and_leaves_the_old_file(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_file(target):
        pass
    assert target.read_text() == "old"


@pytest.mark.parametrize("make", [atomic_file, atomic_folder])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_storage_error_that_names_the_target(make, number, tmp_path):
    with pytest.raises(StorageError, match=r"made: no space left") as error, make(tmp_path / "made"):
        raise OSError(number, "full")
    assert error.value.exit_code == 5
    assert list(tmp_path.iterdir()) == []


def test_another_error_of_the_system_keeps_its_name(tmp_path):
    with pytest.raises(OSError), atomic_folder(tmp_path / "made"):
        raise OSError(errno.EIO, "broken")
    assert list(tmp_path.iterdir()) == []


def test_a_rename_that_fails_for_another_reason_is_not_taken_for_a_second_writer(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError), atomic_folder(tmp_path / "made"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_json_is_read_back_and_refuses_what_json_has_no_word_for(tmp_path):
    target, value = tmp_path / "x.json", {"é": [1, 0.1, None, "→"]}
    write_json(target, value)
    assert json.loads(target.read_text(encoding="utf-8")) == value
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(target, {"x": bad})
    assert json.loads(target.read_text(encoding="utf-8")) == value
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("make", [atomic_file, atomic_folder])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_place_that_cannot_be_written_is_named(make, code, tmp_path):
    with pytest.raises(StorageError, match=r"made: cannot be written .*; choose another folder"), make(tmp_path / "made"):
        raise OSError(code, os.strerror(code))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/below: cannot be created"), atomic_folder(tmp_path / "file" / "below" / "x"):
        pass


@pytest.mark.parametrize("library", [ctypes.CDLL, lambda *_, **__: object()], ids=["exchange", "two renames"])
def test_a_folder_is_replaced_whole(library, tmp_path, monkeypatch):
    """In one step where the C library can exchange two names; an object without functions is one that cannot."""
    monkeypatch.setattr(ctypes, "CDLL", library)
    target = tmp_path / "made"
    for text in ("first", "second", "third"):
        with atomic_folder(target, replace=True) as scratch:
            (scratch / "x.txt").write_text(text)
            assert not target.exists() or (target / "x.txt").read_text() != text
        assert (target / "x.txt").read_text() == text
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path):
    with atomic_folder(tmp_path / "made") as scratch:
        (scratch / "x.txt").write_text("old")
    with pytest.raises(ValueError), atomic_folder(tmp_path / "made", replace=True) as scratch:
        (scratch / "x.txt").write_text("new")
        raise ValueError("broken")
    assert (tmp_path / "made" / "x.txt").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "made"]


def test_there_is_no_moment_without_the_folder(tmp_path):
    """A process that looks for it again and again while it is replaced finds it every time."""
    target, over, misses = tmp_path / "made", threading.Event(), []

    def replace(text: str) -> None:
        with atomic_folder(target, replace=True) as scratch:
            (scratch / "x.txt").write_text(text)

    def read() -> None:
        while not over.is_set():
            try:
                target.stat()
            except FileNotFoundError as error:
                misses.append(error)

    replace("0")
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        replace(str(number))
    over.set()
    reader.join()
    assert misses == []


def test_scratch_of_a_killed_process_is_removed_an_hour_later(tmp_path):
    names = ("old", "held", "fresh", "busy")
    for name in names:
        (tmp_path / f"{SCRATCH}{name}-12").mkdir()
        (tmp_path / f"{SCRATCH}{name}-12" / "half.bin").write_bytes(b"half")
    (tmp_path / f"{SCRATCH}12-old.json").write_text("{")
    foreign = {".tmp-thesis", ".tmp-20261126-notes.txt"}  # of other programs
    for name in foreign:
        (tmp_path / name).write_text("the only copy")
    long_ago = time.time() - ABANDONED - 60
    for path in tmp_path.rglob("*"):
        if "fresh" not in str(path) and path.parent.name != f"{SCRATCH}busy-12":
            os.utime(path, (long_ago, long_ago))
    handle = os.open(tmp_path / f"{SCRATCH}held-12", os.O_RDONLY)  # as a process does that works there, however slowly
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        write_json(tmp_path / "x.json", {})
    finally:
        os.close(handle)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == foreign | {"x.json", f"{SCRATCH}held-12", f"{SCRATCH}fresh-12", f"{SCRATCH}busy-12"}
    _sweep_abandoned.cache_clear()
    with atomic_folder(tmp_path / "made"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == left - {f"{SCRATCH}held-12"} | {"made"}


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    path.chmod(0o600)
    write_json(path, {"new": 1})
    assert path.stat().st_mode & 0o777 == 0o600 and "new" in path.read_text()
