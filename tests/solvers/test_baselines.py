"""The most popular items, also where their numbers are beyond those that float32 tells apart."""

import numpy as np
import scipy.sparse as sp

from rankbench.solvers.baselines import Popularity, popularity


def test_items_rank_by_their_numbers_of_interactions():
    for counts in ([3, 0, 5], [2**24, 0, 2**24 + 1]):
        X = sp.csr_array((1, 3), dtype=np.float32)
        X.indices = np.repeat(np.arange(3, dtype=np.int32), counts)
        model = popularity(X, Popularity(), 0)
        assert model.V[:, 0].tolist() == counts
