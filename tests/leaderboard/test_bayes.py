"""The Bayesian signed-rank test of a standing, against its definition drawn anew."""

import math

import numpy as np
import pytest

from rankbench.leaderboard.bayes import against_first
from rankbench.leaderboard.standings import Standings

ROPE = 0.02
RNG = np.random.default_rng(5)
FIRST = RNG.uniform(0.2, 0.9, 10)


def of(*columns):
    values = np.column_stack(columns)
    return Standings(tuple(f"d{i}" for i in range(len(values))), tuple("abcdefg"[: values.shape[1]]), values)


def by_definition(differences, rope, n=20_000):
    """A prior observation 0 of weight 1/2, Dirichlet weights, and the most probable region of the means of two differences."""
    z = np.concatenate([[0.0], differences])
    weights = np.random.default_rng(0).dirichlet([0.5, *np.ones(len(differences))], n)
    means = (z[:, None] + z) / 2
    shares = [
        np.einsum("si,ij,sj->s", weights, region, weights) for region in (means < -rope, abs(means) <= rope, means > rope)
    ]
    return np.bincount(np.argmax(shares, axis=0), minlength=3) / n


@pytest.mark.parametrize("shift", [-0.15, -0.03, -0.01, 0.0])
def test_the_probabilities_are_those_of_the_definition(shift):
    other = FIRST * (1 + shift + RNG.normal(0, 0.03, 10))
    board = of(FIRST + 1e-9, np.minimum(other, FIRST * 1.4))
    first = board.order[0]
    found = against_first(board, ROPE)["ab"[1 - first]]
    shares = board.values / board.values.max(axis=1, keepdims=True)
    expected = by_definition(shares[:, 1 - first] - shares[:, first], ROPE)
    assert [found.worse, found.equal, found.better] == pytest.approx(expected, abs=0.035)


def test_a_copy_is_equal_and_half_as_good_is_worse():
    without = FIRST.copy()
    without[:9] = math.nan
    found = against_first(of(FIRST, FIRST, FIRST / 2, without), ROPE)
    assert found["b"].equal == 1.0 and found["c"].worse > 0.99 and found["d"].worse > 0.99


def test_differences_are_shares_of_the_best_value():
    values = np.array([FIRST, FIRST * 0.97])
    scaled = values * np.logspace(-3, 3, 10)
    assert against_first(of(*values), ROPE) == against_first(of(*scaled), ROPE)
