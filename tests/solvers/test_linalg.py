"""The inverse in place, against numpy.linalg.inv in float64."""

import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.errors import NumericalError
from rankbench.solvers import linalg
from rankbench.solvers.linalg import inverse_by_panels_, spd_inverse_

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
PANEL, COLUMNS = 8, 16  # small, so that a property test meets every boundary at little cost
BOTH = pytest.mark.parametrize("invert_", [spd_inverse_, inverse_by_panels_])


def small_panels():
    return mock.patch.multiple(linalg, PANEL=PANEL, _COLUMNS=COLUMNS)


def positive_definite(n, seed, ridge=1.0):
    X = np.random.default_rng(seed).standard_normal((n + 5, n))
    return X.T @ X + ridge * np.eye(n)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@BOTH
@PROPERTY
@given(n=st.integers(1, 5 * PANEL), seed=st.integers(0, 2**32 - 1))
@example(n=1, seed=0)
@example(n=PANEL - 1, seed=0)
@example(n=PANEL, seed=0)
@example(n=PANEL + 1, seed=0)
@example(n=COLUMNS - 1, seed=0)
@example(n=COLUMNS, seed=0)
@example(n=COLUMNS + 1, seed=0)
@example(n=4 * COLUMNS + PANEL + 3, seed=0)
def test_it_is_the_inverse(invert_, n, seed):
    A = positive_definite(n, seed)
    expected = np.linalg.inv(A)
    with small_panels():
        invert_(A)
    assert relative_error(A, expected) < 1e-11


@pytest.mark.parametrize("n", [linalg.PANEL + 1, linalg._COLUMNS + linalg.PANEL + 37])
def test_panels_of_the_real_size(n):
    A = positive_definite(n, seed=n)
    expected = np.linalg.inv(A)
    assert relative_error(inverse_by_panels_(A), expected) < 1e-11


@pytest.mark.parametrize("ridge", [10.0, 1e-2])
def test_float32_by_panels_is_as_accurate_as_lapack(ridge):
    # Item counts that fall by a factor of 60, as real ones do: triangular inverses that multiply up errors lose digits here.
    n = 1100
    X = np.random.default_rng(0).random((2 * n, n)) < np.geomspace(0.3, 0.005, n)
    A = X.T.astype(float) @ X + ridge * np.eye(n)
    expected = np.linalg.inv(A)
    by_lapack = relative_error(spd_inverse_(A.astype(np.float32)), expected)
    by_panels = relative_error(inverse_by_panels_(A.astype(np.float32)), expected)
    assert by_panels < 1.5 * by_lapack


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 70, 200])
def test_the_result_is_symmetric_to_the_bit_and_lies_in_the_same_memory(invert_, dtype, n):
    A = positive_definite(n, seed=n).astype(dtype)
    before = A.__array_interface__["data"]
    with small_panels():
        result = invert_(A)
    assert result is A
    assert (A.__array_interface__["data"], A.dtype) == (before, dtype)
    assert_array_equal(A, A.T)


@BOTH
@pytest.mark.parametrize("n, row", [(1, 0), (30, 0), (30, PANEL - 1), (30, PANEL), (30, 29)])
def test_a_matrix_that_is_not_positive_definite_is_refused_by_its_row(invert_, n, row):
    A = positive_definite(n, seed=3)
    # What is left of A[row, row] after the rows before it are eliminated; a little less is the first negative pivot.
    before = A[row, :row]
    pivot = A[row, row] - before @ np.linalg.solve(A[:row, :row], before)
    A[row, row] -= 1.01 * pivot
    with small_panels(), pytest.raises(NumericalError, match=re.escape(f"(row {row} of {n}, float64)")):
        invert_(A)


def test_an_order_that_lapack_does_not_survive_goes_by_panels():
    A = positive_definite(20, seed=0)
    expected = np.linalg.inv(A)
    by_panels = mock.Mock(wraps=inverse_by_panels_)
    with small_panels(), mock.patch.multiple(linalg, LAPACK_ORDER=19, inverse_by_panels_=by_panels):
        spd_inverse_(A)
    by_panels.assert_called_once()
    assert_allclose(A, expected, atol=1e-12)


@BOTH
def test_progress_rises_to_the_whole_work(invert_):
    seen = []
    with small_panels():
        invert_(positive_definite(37, seed=0), lambda done, total: seen.append((done, total)))
    done, totals = zip(*seen, strict=True)
    assert set(totals) == {37**3}
    assert list(done) == sorted(done)
    assert done[-1] == 37**3
