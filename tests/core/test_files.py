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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankbench.core.errors import StorageError, own_error
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


def test_of_two_writers_of_a_folder_the_first_is_kept(tmp_path):
    target = tmp_path / "made"
    with atomic_folder(target) as slow:
        (slow / "by.txt").write_text("slow")
        with atomic_folder(target) as fast:
            (fast / "by.txt").write_text("fast")
    assert (target / "by.txt").read_text() == "fast"
    assert list(tmp_path.iterdir()) == [target]


def test_of_two_writers_of_a_folder_of_their_own_the_second_is_told(tmp_path):
    target = tmp_path / "made"
    refused = pytest.raises(StorageError, match="another process has made it meanwhile")
    with refused, atomic_folder(target, exclusive=True), atomic_folder(target, exclusive=True) as fast:
        (fast / "by.txt").write_text("fast")
    assert list(tmp_path.iterdir()) == [target] and (target / "by.txt").read_text() == "fast"


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


def written(make, target, text, **options):
    with make(target, **options) as scratch:
        (scratch / "x.txt" if make is atomic_folder else scratch).write_text(text)


def content(target):
    return (target / "x.txt" if target.is_dir() else target).read_text()


MAKERS = pytest.mark.parametrize(("make", "options"), [(atomic_file, {}), (atomic_folder, {"replace": True})])


@MAKERS
@pytest.mark.parametrize("old", ["old", None])
@pytest.mark.parametrize(
    ("raised", "seen", "message"),
    [
        (ValueError("broken"), ValueError, "broken"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (OSError(errno.EIO, "broken"), OSError, "broken"),
        *((OSError(number, "full"), StorageError, "made: no space left") for number in (errno.ENOSPC, errno.EDQUOT)),
        *(
            (OSError(number, "no"), StorageError, "made: cannot be written .*; choose another folder")
            for number in (errno.EACCES, errno.EROFS, errno.EPERM)
        ),
    ],
)
def test_a_failure_changes_nothing_and_a_disk_that_fails_is_named(make, options, old, raised, seen, message, tmp_path):
    target = tmp_path / "made"
    if old:
        written(make, target, old)
    with pytest.raises(seen, match=message) as error, make(target, **options) as scratch:
        (scratch / "x.txt" if make is atomic_folder else scratch).write_text("half")
        raise raised
    assert getattr(error.value, "exit_code", 5) == 5
    assert [*tmp_path.iterdir()] == ([target] if old else []) and (not old or content(target) == "old")


@MAKERS
def test_a_move_that_fails_leaves_what_was_there(make, options, tmp_path, monkeypatch):
    """There is no moment at which the old one is gone and the new one not there."""

    def refuse(self, target):
        raise OSError(errno.EIO, "broken")

    target = tmp_path / "made"
    written(make, target, "old")
    monkeypatch.setattr(Path, "replace" if make is atomic_file else "rename", refuse)
    with pytest.raises(OSError, match="broken"):
        written(make, target, "new", **options)
    assert content(target) == "old" and [*tmp_path.iterdir()] == [target]


def test_a_writer_that_writes_nothing_is_an_error_and_leaves_the_old_file(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_file(target):
        pass
    assert target.read_text() == "old"


def test_json_is_read_back_and_refuses_what_json_has_no_word_for(tmp_path):
    target, value = tmp_path / "x.json", {"é": [1, 0.1, None, "→"]}
    write_json(target, value)
    assert json.loads(target.read_text(encoding="utf-8")) == value
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(target, {"x": bad})
    assert json.loads(target.read_text(encoding="utf-8")) == value
    assert list(tmp_path.iterdir()) == [target]


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


def test_there_is_no_moment_without_the_folder(tmp_path):
    """A process that looks for it again and again while it is replaced finds it every time."""
    target, over, misses, looks = tmp_path / "made", threading.Event(), [], []

    def read() -> None:
        while not over.is_set():
            try:
                looks.append(target.stat().st_ino)
            except FileNotFoundError as error:
                misses.append(error)

    written(atomic_folder, target, "0")
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        written(atomic_folder, target, str(number), replace=True)
    over.set()
    reader.join()
    assert misses == [] and len({*looks}) > 1


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


def test_a_name_that_arrow_does_not_open_is_said_in_one_line(tmp_path):
    with pytest.raises(UnicodeEncodeError) as refused:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "\udcff.parquet")
    assert str(own_error(refused.value)).endswith("udcff.parquet': not UTF-8; choose another name")
