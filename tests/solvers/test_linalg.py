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
@example(n=PANEL, seed=0)
@example(n=9 * PANEL + 3, seed=0)
def test_it_is_the_inverse_symmetric_to_the_bit_and_in_the_same_memory(n, seed):
    A, seen = positive_definite(n, seed), []
    expected, memory = np.linalg.inv(A), A.__array_interface__["data"]
    with small_panels():
        found = spd_inverse_(A, lambda *step: seen.append(step))
    assert relative_error(A, expected) < 1e-11
    assert found is A and A.__array_interface__["data"] == memory
    assert_array_equal(A, A.T)
    assert seen == sorted(seen) and seen[-1] == (n**3, n**3)


def test_panels_of_the_real_sizes():
    for n in (linalg.SMALL_PANEL, 3 * linalg.SMALL_PANEL + 37):
        A = positive_definite(n, seed=n)
        assert relative_error(spd_inverse_(A.copy()), np.linalg.inv(A)) < 1e-11
    assert linalg.panel_width(linalg.SMALL_ORDER) < linalg.panel_width(linalg.SMALL_ORDER + 1)
    A = positive_definite(40, seed=0)
    with mock.patch.multiple(linalg, SMALL_ORDER=39, PANEL=PANEL):
        assert_allclose(spd_inverse_(A.copy()), np.linalg.inv(A), atol=1e-12)


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


@pytest.mark.parametrize("n, row", [(1, 0), (30, 0), (30, PANEL - 1), (30, PANEL), (30, 29)])
def test_a_matrix_that_is_not_positive_definite_is_refused_by_its_row(n, row):
    A = positive_definite(n, seed=3)
    # What is left of A[row, row] after the rows before it are eliminated; a little less is the first negative pivot.
    before = A[row, :row]
    pivot = A[row, row] - before @ np.linalg.solve(A[:row, :row], before)
    A[row, row] -= 1.01 * pivot
    with small_panels(), pytest.raises(NumericalError, match=re.escape(f"(row {row} of {n}, float64)")):
        spd_inverse_(A)
