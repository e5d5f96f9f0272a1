"""Traits of datasets, against loops and scipy."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankbench.judge.ranking import MethodRanking, performance_space
from rankbench.leaderboard.traits import traits

VALUES = np.random.default_rng(1).random((8, 4))


def board(values):
    n, k = values.shape
    return MethodRanking(tuple(f"d{i}" for i in range(n)), tuple(f"m{j}" for j in range(k)), values)


def test_traits_are_those_of_loops():
    X = sp.csr_array(np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], np.float32))
    counts = [3, 2, 1]  # of the items that occur; the same for users
    gini = sum(abs(a - b) for a in counts for b in counts) / (2 * 3 * 6)
    assert traits(X) == pytest.approx(
        {
            "users": 3, "items": 3, "interactions": 6, "density": 6 / 9, "interactions per user": 2, "popularity skew": gini,
            "activity skew": gini,
        }
    )  # fmt: skip


def test_datasets_with_the_same_order_are_one_point():
    values = np.vstack([VALUES, VALUES[0] * 3])
    points, shares = performance_space(board(values))
    assert points[8] == pytest.approx(points[0]) and 0 < shares[1] <= shares[0] <= 1
    ranks = board(values).ranks - board(values).mean_ranks
    eigenvalues = np.sort(np.linalg.eigvalsh(ranks.T @ ranks))[::-1]
    assert shares == pytest.approx(eigenvalues[:2] / eigenvalues.sum())
    assert performance_space(board(VALUES[:2])) is None and performance_space(board(np.ones((4, 3)))) is None
