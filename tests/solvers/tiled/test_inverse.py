"""The inverse by tiles against the reference and the one in memory; refused input; the same bits after a kill and a resume."""

import itertools
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from small_systems import SHIFT, Slowly, shifted_gram, some_data

from rankbench.core.errors import ConfigError, NumericalError, StorageError
from rankbench.data.blocks import gram
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.shared import inverse
from rankbench.solvers.tiled.grid import RESERVE, SMALLEST, choose_grid
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.solvers.tiled.matrix import TiledMatrix
from rankbench.solvers.tiled.store import LOCK, STATE, TILES, TileFile

pytestmark = pytest.mark.usefixtures("unflushed")

PLENTY = 10**9
FLOAT = np.dtype(np.float64)


def expected_inverse(X, shift=SHIFT):
    return np.linalg.inv(shifted_gram(X, shift))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all examples of a property: each starts anew there."""
    return tmp_path_factory.mktemp("tiles")


@given(
    n=st.integers(1, 24),
    tile=st.integers(1, 25),
    density=st.floats(0, 1),
    odds=st.floats(0, 9),
    ridge=st.floats(0.1, 100),
    ends=st.tuples(st.integers(0, 24), st.integers(0, 24)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50)
@example(n=1, tile=1, density=0.5, odds=0.0, ridge=1.0, ends=(0, 1), seed=0)
@example(n=12, tile=6, density=0.5, odds=0.0, ridge=1.0, ends=(0, 12), seed=0)
@example(n=13, tile=6, density=0.5, odds=0.0, ridge=1.0, ends=(0, 13), seed=0)
def test_it_is_the_inverse_and_any_of_its_columns(folder, n, tile, density, odds, ridge, ends, seed):
    X = some_data(30, n, density, seed)
    seen = []
    C = tiled_inverse(
        X, Shift(odds, ridge), folder, PLENTY, np.float64, tile=tile, progress=lambda *step: seen.append(step)
    )  # fmt: skip
    assert seen == sorted(seen) and seen[-1] == (n**3, n**3)
    inverted = C.columns(0, n)
    expected = expected_inverse(X, Shift(odds, ridge))
    assert_allclose(inverted, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    assert_array_equal(inverted, inverted.T)
    assert_array_equal(C.diagonal(), np.diagonal(inverted))
    start, stop = (min(end, n) for end in sorted(ends))
    found = C.columns(start, stop)
    assert_array_equal(found, inverted[:, start:stop])
    assert found.flags.c_contiguous


def test_float32_is_as_accurate_as_the_dense_inverse(tmp_path):
    X, shift = some_data(1500, 700, seed=1), Shift(0.0, 0.01)
    expected = expected_inverse(X, shift)

    def error(found):
        return np.linalg.norm(found - expected) / np.linalg.norm(expected)

    tiled = tiled_inverse(X, shift, tmp_path, PLENTY, tile=96).columns(0, 700)
    assert tiled.dtype == np.float32
    assert error(tiled) < 1.5 * error(inverse(gram(X), shift)) + 1e-7


@pytest.mark.parametrize("tile", [1, 6, 30])
def test_a_system_that_is_not_positive_definite_is_refused_by_its_row(tmp_path, tile):
    X = some_data(60, 30, density=0.5, seed=2)
    shift = Shift(0.0, -4.0)
    A = shifted_gram(X, shift)
    minors = [np.linalg.eigvalsh(A[: row + 1, : row + 1])[0] for row in range(30)]
    row = next(row for row, least in enumerate(minors) if least < 0)
    assert 0 < row < 29
    with pytest.raises(NumericalError, match=re.escape(f"not positive definite (row {row} of 30, float64)")):
        tiled_inverse(X, shift, tmp_path / "tiles", PLENTY, np.float64, tile=tile)
    assert not list(tmp_path.iterdir())


@given(n=st.integers(1, 200_000), memory=st.integers(0, 64 * 10**9))
def test_the_largest_tiles_that_fit_are_chosen(n, memory):
    try:
        grid = choose_grid(n, FLOAT, memory, 0)
    except StorageError:
        assert n**2 * 8 > memory - RESERVE - 4 * 8 * SMALLEST**2 - 16 * n * SMALLEST
        return
    assert grid.memory(0) <= memory
    assert grid.tile >= min(n, SMALLEST) / 2
    fewer = grid.n_blocks - 1
    assert fewer == 0 or -(-n // fewer) > 16_384 or choose_grid(n, FLOAT, 10**15, 0, -(-n // fewer)).memory(0) > memory


def test_too_little_memory_is_told_with_the_least_that_would_do(tmp_path):
    X = some_data(20, 3000)
    with pytest.raises(StorageError, match=r"needs [0-9]+ MB of memory, 10 MB are available") as error:
        tiled_inverse(X, SHIFT, tmp_path, 10 * 10**6)
    assert list(tmp_path.iterdir()) == []
    least = int(re.search(r"needs (\d+) MB", str(error.value))[1])
    choose_grid(3000, np.dtype(np.float32), least * 10**6, 0)
    with pytest.raises(StorageError):
        choose_grid(3000, np.dtype(np.float32), (least - 1) * 10**6, 0)


def test_an_unfinished_matrix_cannot_be_read_and_another_system_is_not_gone_on_with(tmp_path):
    X, broken = some_data(20, 12), itertools.count()

    def stop(done, total):
        if next(broken) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiled_inverse(X, SHIFT, tmp_path, PLENTY, tile=5, progress=stop)
    with pytest.raises(StorageError, match="holds no finished inverse"):
        TiledMatrix(tmp_path)
    for other in (some_data(20, 12, seed=1), X):
        with pytest.raises(ConfigError, match="other data or of another configuration"):
            tiled_inverse(other, Shift(SHIFT.odds, 3.0), tmp_path, PLENTY, resume=True)
    with pytest.raises(StorageError, match="MB of memory"):
        tiled_inverse(X, SHIFT, tmp_path, 1, resume=True)
    resumed = tiled_inverse(X, SHIFT, tmp_path, PLENTY, resume=True)
    assert resumed.tile == 5 and resumed.earlier > 0
    assert_allclose(resumed.columns(0, 12), expected_inverse(X), rtol=1e-4, atol=1e-5)
    before = (tmp_path / TILES).stat().st_mtime_ns
    tiled_inverse(X, SHIFT, tmp_path, PLENTY, resume=True)  # nothing is left to do
    assert (tmp_path / TILES).stat().st_mtime_ns == before


@pytest.mark.parametrize("discard", [False, True])
def test_tiles_by_other_code_are_replaced_or_told(tmp_path, caplog, discard):
    X = some_data(20, 12)
    tiled_inverse(X, SHIFT, tmp_path, PLENTY, tile=5)
    state = json.loads((tmp_path / STATE).read_text(encoding="utf-8"))
    (tmp_path / STATE).write_text(json.dumps(state | {"code": "other", "seconds": 9.0}), encoding="utf-8")
    with mock.patch.object(TileFile, "replace", autospec=True, side_effect=TileFile.replace) as written:
        again = tiled_inverse(X, SHIFT, tmp_path, PLENTY, tile=5, resume=True, discard=discard)
    assert (written.call_count > 0, again.earlier) == ((True, 0.0) if discard else (False, 9.0))
    assert "by another version of the code" in caplog.text
    if discard:  # nor is a sweep refused for good where its data have changed
        assert tiled_inverse(some_data(20, 12, seed=1), SHIFT, tmp_path, PLENTY, resume=True, discard=True).earlier == 0


def test_a_full_disk_before_the_first_panel_leaves_nothing(tmp_path, monkeypatch):
    full = mock.Mock(side_effect=StorageError("the disk is full"))
    monkeypatch.setattr(TileFile, "replace", full)
    with pytest.raises(StorageError, match="the disk is full"):
        tiled_inverse(some_data(20, 12), SHIFT, tmp_path / "tiles", PLENTY, tile=5, resume=True)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    # Each run is a process that is killed in earnest. The server that forks them has the imports done and no threads yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rankbench.solvers.tiled.inverse"])
    X, tile, moments = some_data(200, 300), 25, random.Random(0)

    def start(folder, progress):
        process = context.Process(target=tiled_inverse, args=(X, SHIFT, folder, PLENTY, np.float32, tile, True, progress))
        process.start()
        return process

    expected = tiled_inverse(X, SHIFT, tmp_path / "whole", PLENTY, tile=tile).columns(0, 300)
    folder, killed = tmp_path / "killed", 0
    for attempt in range(5):
        before = state_of(folder)
        process = start(folder, Slowly(8 * (attempt + 1) if attempt < 4 else sys.maxsize))
        if attempt < 4:
            # It has gone on from where the last one ended; then at any moment of the next panels.
            while process.is_alive() and state_of(folder) == before:
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
        process.join(120)
        if process.exitcode == 0:
            break
        assert process.exitcode == -9
        killed += 1
    assert killed >= 3
    assert_array_equal(TiledMatrix(folder).columns(0, 300), expected)
    assert {path.name for path in folder.iterdir()} == {TILES, STATE, LOCK}


def state_of(folder):
    path = folder / STATE
    return path.read_bytes() if path.exists() else None


MEASURE = """
import sys
from pathlib import Path
import numpy as np, os, psutil
os.fsync = os.fdatasync = lambda file: None
sys.path.insert(0, {here!r})
from small_systems import SHIFT, some_data
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.tracking.environment import peak_memory, reset_peak_memory
# Code is compiled, and the buffers of BLAS are touched, by a problem of the same tile.
tiled_inverse(some_data(300, 1100, 0.02), SHIFT, Path({folder!r}), 10**9, np.float64, tile=512)
X = some_data(300, 3000, 0.02)
reset_peak_memory()
before = psutil.Process().memory_info().rss
C = tiled_inverse(X, SHIFT, Path({folder!r}), {memory}, np.float64)
print(peak_memory() - before, C.tile)
"""


def test_it_stays_in_the_memory_that_it_was_given(tmp_path):
    memory, n = 34_000_000, 3000  # 0.1 MB more than tiles of 600 rows need
    assert memory < n**2 * 8 / 2  # the triangle would not fit
    code = MEASURE.format(here=str(Path(__file__).parent), folder=str(tmp_path), memory=memory)
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=one_thread)
    taken, tile = map(int, done.stdout.split())
    assert SMALLEST / 2 <= tile < n
    # At this size a quarter of the reserve is used, and pages of files may have left memory meanwhile. One tile more would take
    # 2.9 MB, which half of the reserve lets be seen.
    assert taken <= memory - RESERVE // 2
    assert taken + tile**2 * 8 + RESERVE // 4 > memory - RESERVE // 2
