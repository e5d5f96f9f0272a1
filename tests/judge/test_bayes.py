"""The Bayesian signed-rank test of a standing, against numbers of its authors' library and its definition as a loop."""

from collections import Counter

import numpy as np
import pytest

from rankbench.judge.ranking import MethodRanking, against_first

ROPE = 0.02
RNG = np.random.default_rng(5)
FIRST = RNG.uniform(0.2, 0.9, 10)

# SignedRankTest of baycomp 1.0.3 with 200,000 samples and a rope of 0.01, on eight datasets: worse, equal, better.
SCORES = np.array([0.30, 0.42, 0.25, 0.61, 0.55, 0.33, 0.48, 0.71])
OF_THE_AUTHORS = [
    ([0.03, -0.01, 0.02, 0.05, 0.00, 0.04, -0.02, 0.01], [0.027, 0.139, 0.834]),
    ([0.004, -0.003, 0.002, -0.005, 0.012, 0.001, -0.002, 0.003], [0.0, 1.0, 0.0]),
    ([-0.03, -0.02, -0.05, -0.01, -0.06, 0.04, -0.02, -0.03], [0.983, 0.010, 0.007]),
]


def of(*columns, leader=None):
    """A standing with the order of the columns, in which the first is the best one by its ranks or as the test says."""
    values = np.column_stack(columns)
    found = MethodRanking(tuple(f"d{i}" for i in range(len(values))), tuple("abcdefg"[: values.shape[1]]), values)
    if leader is not None:
        found.__dict__["order"] = [leader, *(i for i in range(values.shape[1]) if i != leader)]
    return found


@pytest.mark.parametrize(("differences", "expected"), OF_THE_AUTHORS)
def test_the_probabilities_are_those_of_the_authors_library(differences, expected):
    # A third method with the value 1 everywhere makes the differences shares of 1.
    board = of(SCORES, SCORES + differences, np.ones(8), leader=0)
    found = against_first(board, 0.01)["b"]
    assert [found.worse, found.equal, found.better] == pytest.approx(expected, abs=0.012)


def test_the_probabilities_are_those_of_a_loop():
    other = FIRST * (1 + RNG.normal(-0.02, 0.03, 10))
    found = against_first(of(FIRST, other, np.ones(10), leader=0), ROPE)["b"]
    rng, z, regions = np.random.default_rng(0), [0.0, *(other - FIRST)], Counter()
    for _ in range(4000):
        weights = rng.dirichlet([0.5, *np.ones(10)])
        mass = Counter({"worse": 0.0, "equal": 0.0, "better": 0.0})
        for a, x in zip(weights, z, strict=True):
            for b, y in zip(weights, z, strict=True):
                mean = (x + y) / 2
                mass["worse" if mean < -ROPE else "better" if mean > ROPE else "equal"] += a * b
        regions[mass.most_common(1)[0][0]] += 1 / 4000
    assert [found.worse, found.equal, found.better] == pytest.approx(
        [regions[name] for name in ("worse", "equal", "better")], abs=0.035
    )
    assert found.equal > 0.05 and found.worse > 0.05


def test_differences_are_shares_of_the_best_value():
    values = np.array([FIRST, FIRST * 0.97])
    scaled = values * np.logspace(-3, 3, 10)
    assert against_first(of(*values), ROPE) == against_first(of(*scaled), ROPE)


def test_datasets_without_any_result_are_ties():
    """A method that is not shown may be the only one with a result there."""
    shown = of(np.append(FIRST, [np.nan] * 3), np.append(FIRST * 0.9, [np.nan] * 3))
    ties = of(np.append(FIRST, [0.5] * 3), np.append(FIRST * 0.9, [0.5] * 3))
    assert against_first(shown, ROPE) == against_first(ties, ROPE)
