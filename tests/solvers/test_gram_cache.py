"""The Gram that is kept: always that of the data asked for, never the memory that somebody else inverts."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from rankbench.data.blocks import csr_from_pairs, gram
from rankbench.solvers.inverse import gram_cache as kept_gram
from rankbench.solvers.inverse.gram_cache import gram_of, kept_bytes


def data(seed, n_items=30):
    rng = np.random.default_rng(seed)
    return csr_from_pairs(rng.integers(0, 50, 400), rng.integers(0, n_items, 400), (50, n_items))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_gram_however_often_and_in_whatever_order_it_is_asked_for(dtype):
    matrices = {seed: data(seed) for seed in (1, 2)}
    for seed in (1, 1, 2, 1, 2, 2):
        found = gram_of(("data", seed), matrices[seed], dtype)
        taken = found.take()
        assert_array_equal(taken, gram(matrices[seed], dtype).take(), strict=True)
        taken.fill(7)  # as a fit, which inverts it there


def test_it_counts_once_and_what_is_large_each_time(monkeypatch):
    made = []
    monkeypatch.setattr(kept_gram, "gram", lambda X, dtype: made.append(X.shape[1]) or gram(X, dtype))
    for _ in range(3):
        gram_of("once", data(4))
    monkeypatch.setattr(kept_gram, "LARGEST", 39 * 39 * 4)
    assert kept_bytes(39, 4) == 39 * 39 * 4 and kept_bytes(40, 4) == 0
    for _ in range(3):
        gram_of("each time", data(4, 40))
    assert made == [30, 40, 40, 40]
