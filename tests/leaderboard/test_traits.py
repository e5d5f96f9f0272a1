"""Traits of datasets, against loops and scipy."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankbench.leaderboard.traits import traits


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
