"""Ranks, tests and profiles against loops and scipy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from rankbench.judge.ranking import MethodRanking, agreement

VALUES = np.random.default_rng(3).random((9, 5)) + np.linspace(0, 0.5, 5)


def of(values, sources=()):
    values = np.asarray(values, float)
    n, k = values.shape
    return MethodRanking(tuple(f"d{i}" for i in range(n)), tuple(f"m{j}" for j in range(k)), values, tuple(sources))


def test_friedman_is_the_peer_in_the_form_of_iman_and_davenport():
    n, k = VALUES.shape
    chi_squared = stats.friedmanchisquare(*VALUES.T).statistic
    expected = stats.f.sf((n - 1) * chi_squared / (n * (k - 1) - chi_squared), k - 1, (k - 1) * (n - 1))
    assert of(VALUES).friedman() == pytest.approx(expected, rel=1e-12)
    assert of(np.ones((4, 3))).friedman() is None and of(VALUES[:, :2]).friedman() is None


@pytest.mark.parametrize("ranks", [(0, 1, 2), (0, 0, 1), (1, 0, 0)])
def test_one_order_on_all_datasets_has_the_probability_that_counting_gives(ranks):
    """Where all datasets have the same order, the form of Iman and Davenport divides by 0."""
    orders = set(itertools.permutations(ranks))
    repeats = sum(len(set(drawn)) == 1 for drawn in itertools.product(orders, repeat=3))
    assert of([ranks] * 3).friedman() == pytest.approx(repeats / len(orders) ** 3)


def test_without_a_result_a_method_shares_the_last_ranks():
    board = of([[0.3, math.nan, 0.5, math.nan], [0.1, 0.2, 0.2, 0.4]])
    np.testing.assert_array_equal(board.ranks, [[2, 3.5, 1, 3.5], [4, 2.5, 2.5, 1]])
    assert board.profiles([1.0])[:, 0].tolist() == [0.0, 0.0, 0.5, 0.5]
    assert board.wins[0].tolist() == [0, 1, 0, 1]


@given(arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0.1, 0.2, 0.3, 0.4, math.nan])))
def test_ranks_wins_and_profiles_are_those_of_loops(values):
    board = of(values)
    n, k = values.shape
    filled = np.where(np.isnan(values), -1, values)
    for d in range(n):
        for i in range(k):
            better, equal = (filled[d] > filled[d, i]).sum(), (filled[d] == filled[d, i]).sum()
            assert board.ranks[d, i] == better + (equal + 1) / 2
    for i in range(k):
        for j in range(k):
            assert board.wins[i, j] == sum(filled[d, i] > filled[d, j] for d in range(n))
    copeland = [sum(np.sign(board.wins[i, j] - board.wins[j, i]) for j in range(k)) for i in range(k)]
    assert board.copeland().tolist() == copeland
    if not np.isnan(values).all(axis=1).any():
        for t, column in zip((1.0, 1.5, 4.0), board.profiles([1.0, 1.5, 4.0]).T, strict=True):
            expected = [np.mean([v[i] >= np.nanmax(v) / t * (1 - 1e-9) for v in values]) for i in range(k)]
            assert column.tolist() == pytest.approx(expected)


def test_agreement_is_over_the_methods_of_both():
    board = of(VALUES)
    other = MethodRanking(board.datasets, ("m4", "m3", "other"), VALUES[:, [4, 3, 0]])
    found = agreement(board, {"same": board, "other": other, "none": of(VALUES[:, :1])})
    assert found == pytest.approx({"same": 1.0, "other": 1.0})
