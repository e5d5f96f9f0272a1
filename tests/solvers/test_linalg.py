"""The inverse in place, against numpy.linalg.inv in float64."""

import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import lapack

from rankbench.core.errors import NumericalError
from rankbench.core.threads import pinned
from rankbench.solvers.inverse import linalg
from rankbench.solvers.inverse.linalg import spd_inverse_

PROPERTY = settings(max_examples=30)
PANEL = 8  # small, so that a property test meets every boundary at little cost


def small_panels():
    return mock.patch.multiple(linalg, SMALL_PANEL=PANEL)


def positive_definite(n, seed, ridge=1.0):
    X = np.random.default_rng(seed).standard_normal((n + 5, n))
    return X.T @ X + ridge * np.eye(n)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@PROPERTY
@given(n=st.integers(1, 5 * PANEL), seed=st.integers(0, 2**32 - 1))
@example(n=1, seed=0)
@example(n=PANEL, seed=0)
@example(n=PANEL + 1, seed=0)
@example(n=9 * PANEL + 3, seed=0)
def test_it_is_the_inverse(n, seed):
    A = positive_definite(n, seed)
    expected = np.linalg.inv(A)
    with small_panels():
        spd_inverse_(A)
    assert relative_error(A, expected) < 1e-11


@pytest.mark.parametrize("n", [linalg.SMALL_PANEL, 3 * linalg.SMALL_PANEL + 37])
def test_panels_of_the_real_size(n):
    A = positive_definite(n, seed=n)
    expected = np.linalg.inv(A)
    assert relative_error(spd_inverse_(A), expected) < 1e-11


def test_float32_is_as_accurate_as_lapack():
    # Item counts that fall by a factor of 60, as real ones do: triangular inverses that multiply up errors lose digits here.
    n = 1100
    for ridge in (10.0, 1e-2):
        X = np.random.default_rng(0).random((2 * n, n)) < np.geomspace(0.3, 0.005, n)
        A = X.T.astype(float) @ X + ridge * np.eye(n)
        expected = np.linalg.inv(A)
        factor, _ = lapack.spotrf(A.astype(np.float32), lower=True)
        lower, _ = lapack.spotri(factor, lower=True)
        by_lapack = np.tril(lower) + np.tril(lower, -1).T
        found = spd_inverse_(A.astype(np.float32))
        assert relative_error(found, expected) < 1.5 * relative_error(by_lapack, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [200, 3 * linalg.SMALL_PANEL + 37])
def test_the_number_of_threads_changes_no_bit(n, dtype):
    A = positive_definite(n, seed=0).astype(dtype)
    found = []
    for threads in (1, 2, 3):
        with pinned(threads):
            found.append(spd_inverse_(A.copy()))
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])


def test_a_large_matrix_has_wider_panels():
    assert linalg.panel_width(linalg.SMALL_ORDER) < linalg.panel_width(linalg.SMALL_ORDER + 1)
    A = positive_definite(40, seed=0)
    expected = np.linalg.inv(A)
    with mock.patch.multiple(linalg, SMALL_ORDER=39, PANEL=PANEL):
        assert_allclose(spd_inverse_(A), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 70, 200])
def test_the_result_is_symmetric_to_the_bit_and_lies_in_the_same_memory(dtype, n):
    A = positive_definite(n, seed=n).astype(dtype)
    before = A.__array_interface__["data"]
    with small_panels():
        result = spd_inverse_(A)
    assert result is A
    assert (A.__array_interface__["data"], A.dtype) == (before, dtype)
    assert_array_equal(A, A.T)


@pytest.mark.parametrize("n, row", [(1, 0), (30, 0), (30, PANEL - 1), (30, PANEL), (30, 29)])
def test_a_matrix_that_is_not_positive_definite_is_refused_by_its_row(n, row):
    A = positive_definite(n, seed=3)
    # What is left of A[row, row] after the rows before it are eliminated; a little less is the first negative pivot.
    before = A[row, :row]
    pivot = A[row, row] - before @ np.linalg.solve(A[:row, :row], before)
    A[row, row] -= 1.01 * pivot
    with small_panels(), pytest.raises(NumericalError, match=re.escape(f"(row {row} of {n}, float64)")):
        spd_inverse_(A)


def test_progress_rises_to_the_whole_work():
    seen = []
    with small_panels():
        spd_inverse_(positive_definite(37, seed=0), lambda done, total: seen.append((done, total)))
    done, totals = zip(*seen, strict=True)
    assert set(totals) == {37**3}
    assert list(done) == sorted(done)
    assert done[-1] == 37**3
