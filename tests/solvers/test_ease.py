"""EASE, against its definition: one ridge regression an item."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.linear.ease import EASE

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
RIDGE = st.floats(0.1, 1e3)


def ease(X, lam):
    (model,) = fit_shared(gram(sp.csr_array(X), np.float64), [(registered().get("ease"), EASE(lam))])
    return model.dense_weights()


def ease_item_by_item(X, lam):
    """The definition: predict item j from all the others, one ridge regression an item."""
    n_items = X.shape[1]
    B = np.zeros((n_items, n_items))
    for j in range(n_items):
        rest = np.arange(n_items) != j
        A = X[:, rest]
        B[rest, j] = np.linalg.solve(A.T @ A + lam * np.eye(n_items - 1), A.T @ X[:, j])
    return B


@PROPERTY
@given(X=BINARY, lam=RIDGE)
def test_it_is_one_ridge_regression_an_item(X, lam):
    assert_allclose(ease(X, lam), ease_item_by_item(X, lam), atol=1e-10)


@PROPERTY
@given(X=BINARY, lam=RIDGE, order=st.permutations(range(5)))
def test_renaming_items_permutes_the_weights(X, lam, order):
    assert_allclose(ease(X[:, order], lam), ease(X, lam)[np.ix_(order, order)], atol=1e-10)


@PROPERTY
@given(X=BINARY, lam=RIDGE, empty=st.integers(0, 4))
def test_an_item_without_interactions_has_no_weights(X, lam, empty):
    X[:, empty] = 0
    W = ease(X, lam)
    assert_array_equal(W[:, empty], 0)
    assert_array_equal(W[empty], 0)


@pytest.mark.parametrize("lam", [0.0, -1.0, float("nan")])
def test_lam_must_be_positive(lam):
    with pytest.raises(ConfigError, match="lam must be > 0"):
        EASE(lam)
