"""The file of tiles: what is read is what was written, a panel is replaced whole or not at all, a full disk is told before."""

import errno
import itertools
import json
import os
from functools import partial
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from rankbench.core.errors import StorageError
from rankbench.solvers.tiled.grid import Grid
from rankbench.solvers.tiled.store import LOCK, STATE, TILES, TileFile, read_tile, write_tile

FLOAT = np.dtype(np.float64)
GRID = Grid(7, 3, FLOAT)  # blocks of 3, 3 and 1
PROBLEM = {"n": 7, "dtype": "float64"}
PANELS = ([(0, 0), (1, 0), (2, 0)], [(1, 1), (2, 1)], [(2, 2)], [(1, 0), (1, 1)], [(2, 0), (2, 1), (2, 2)])


def contents(number):
    """What panel `number` writes: tiles that tell apart by panel, place and entry."""
    tiles = {}
    for i, j in PANELS[number]:
        shape = GRID.side(i), GRID.side(j)
        tiles[i, j] = np.asfortranarray(np.arange(np.prod(shape)).reshape(shape) + 10.0 * j + 100 * i + 1000 * number)
    return tiles


def check(store, finished):
    """The store holds what `finished` panels wrote, the later over the earlier."""
    assert store.finished == finished
    expected = {}
    for number in range(finished):
        expected |= contents(number)
    for tile, array in expected.items():
        assert_array_equal(store.read(tile, np.empty(GRID.tile**2)), array)


def test_panels_replace_tiles_and_a_reader_sees_the_finished_ones(tmp_path):
    def short(call):
        return lambda file, buffers, where: call(file, [buffers[0][:5]], where)

    store = TileFile.create(tmp_path, GRID, PROBLEM)
    assert TileFile.open(tmp_path) is None
    size = (tmp_path / TILES).stat().st_size
    with mock.patch("os.pwritev", short(os.pwritev)), mock.patch("os.preadv", short(os.preadv)):
        for number in range(len(PANELS)):
            store.replace(contents(number).items())
            check(store, number + 1)
            check(TileFile.open(tmp_path), number + 1)
    assert (tmp_path / TILES).stat().st_size == size
    store.close()
    reader = TileFile.open(tmp_path)  # keeps the matrix when another takes its place
    TileFile.create(tmp_path, GRID, PROBLEM).replace((tile, -array) for tile, array in contents(0).items())
    check(reader, len(PANELS))


def failing_after(n, call):
    """`call`, n times; then the process is as good as dead."""
    calls = itertools.count()

    def fail(*arguments):
        if next(calls) >= n:
            raise KeyboardInterrupt
        return call(*arguments)

    return fail


@pytest.mark.parametrize("number", range(len(PANELS)))
def test_a_panel_that_breaks_off_at_any_write_leaves_the_one_before(tmp_path, number):
    for written in range(len(PANELS[number]) + 1):
        store = TileFile.create(tmp_path, GRID, PROBLEM)
        for before in range(number):
            store.replace(contents(before).items())
        # After the last write the word that the panel counts is what is missing.
        fault = mock.patch.multiple(os, pwritev=failing_after(written, os.pwritev), fdatasync=failing_after(0, os.fdatasync))
        with fault, pytest.raises(KeyboardInterrupt):
            store.replace(contents(number).items())
        check(store, number)
        store.close()
        if number:
            store = TileFile.open(tmp_path, writes=True)
            check(store, number)
            store.replace(contents(number).items())
            check(store, number + 1)
            store.close()


def test_a_disk_that_is_too_small_is_told_in_gigabytes_and_nothing_is_left(tmp_path):
    huge = Grid(10_000_000, 100_000, FLOAT)
    with pytest.raises(StorageError, match=r"tiles\.bin: the tiles need 412000\.0 GB of disk, [0-9.]+ GB are free"):
        TileFile.create(tmp_path, huge, PROBLEM)
    assert not (tmp_path / TILES).exists()


def test_a_panel_that_begins_again_gets_its_slots_again_and_nobody_else_does(tmp_path):
    store = TileFile.create(tmp_path, GRID, PROBLEM, spare=4)
    first, second, third = (store.reserve(PANELS[number]) for number in range(3))
    store.commit(first)
    store.release()
    # Whatever was in flight may still be written: the same tiles, with the same bits.
    assert store.can_reserve(10**9) and store.reserve(PANELS[1]) == second
    store.commit(second)
    assert store.reserve(PANELS[2]) == third
    fourth = store.reserve(PANELS[3])
    assert not set(fourth.values()) & {slot for each in (second, third) for slot in each.values()}
    store.close()


def test_a_task_of_an_attempt_that_was_given_up_writes_nothing(tmp_path):
    forced = []
    with mock.patch("os.fsync", lambda file: forced.append(os.fstat(file).st_ino)):
        store = TileFile.create(tmp_path, GRID, PROBLEM)
    assert (tmp_path / LOCK).stat().st_ino in forced  # the writer is named to other hosts before their first task
    early, late = (np.full((GRID.tile, GRID.tile), value, GRID.dtype) for value in (1, 2))
    first = store.writer
    write_tile(early, tmp_path, 0, GRID, first)
    store.release()
    with pytest.raises(StorageError, match="the panels of this task were begun again"):
        write_tile(late, tmp_path, 0, GRID, first)
    assert_array_equal(read_tile(tmp_path, 0, GRID, (1, 0)), early)
    write_tile(late, tmp_path, 0, GRID, store.writer)
    assert_array_equal(read_tile(tmp_path, 0, GRID, (1, 0)), late)
    store.close()


def test_only_one_may_write(tmp_path):
    store = TileFile.create(tmp_path, GRID, PROBLEM)
    refused = partial(pytest.raises, StorageError, match="another process writes tiles there")
    with refused():
        TileFile.create(tmp_path, GRID, PROBLEM)
    store.replace(contents(0).items())
    with refused():
        TileFile.create(tmp_path, GRID, PROBLEM)
    with refused():
        TileFile.open(tmp_path, writes=True)
    check(TileFile.open(tmp_path), 1)
    store.close()
    check(TileFile.open(tmp_path, writes=True), 1)


@pytest.mark.parametrize("finished", [0, 3, 10], ids=["none", "tiles are missing", "more than there are"])
def test_a_number_of_panels_that_the_tiles_contradict_is_refused(tmp_path, finished):
    store = TileFile.create(tmp_path, GRID, PROBLEM)
    store.replace(contents(0).items())
    store.close()
    state = json.loads((tmp_path / STATE).read_text(encoding="utf-8"))
    (tmp_path / STATE).write_text(json.dumps(state | {"finished": finished}), encoding="utf-8")
    for writes in (False, True):
        with pytest.raises(StorageError, match=r"panel\.json: names invalid tiles; compute the inverse again"):
            TileFile.open(tmp_path, writes)
    TileFile.create(tmp_path, GRID, PROBLEM).close()  # the folder is not locked


def test_a_copy_on_another_disk_is_written_there_before_its_state(tmp_path):
    store, copy, seen = TileFile.create(tmp_path / "here", GRID, PROBLEM), tmp_path / "there", []
    store.replace(contents(0).items())
    refused = mock.Mock(side_effect=OSError(errno.EXDEV, "another disk"))
    with mock.patch.multiple(os, link=refused, fdatasync=lambda file: seen.append((copy / STATE).exists())):
        store.keep_in(copy)
    assert seen[0] is False
    check(TileFile.open(copy), 1)


def test_a_disk_without_locks_is_told(tmp_path):
    refused = mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    with mock.patch("fcntl.flock", refused), pytest.raises(StorageError, match=r"cannot be locked \(No locks available\)"):
        TileFile.create(tmp_path, GRID, PROBLEM)


def test_tiles_that_are_cut_or_gone_are_named(tmp_path):
    store = TileFile.create(tmp_path, GRID, PROBLEM)
    store.replace(contents(0).items())
    state = json.loads((tmp_path / STATE).read_text(encoding="utf-8"))
    assert (state["problem"], state["tile"], state["finished"]) == (PROBLEM, 3, 1)
    os.truncate(tmp_path / TILES, 0)
    with pytest.raises(StorageError, match=r"tiles\.bin: shorter than it should be"):
        store.read((0, 0), np.empty(9))
    (tmp_path / TILES).unlink()
    with pytest.raises(StorageError, match=r"tiles\.bin: the tiles are missing"):
        TileFile.open(tmp_path)
