"""Neighbours and SLIM: formulas in loops, the peer where it means the same, scikit-learn's elastic net, and saved models."""

import numpy as np
import pytest
import scipy.sparse as sp
from closed_form_oracles import some_interactions
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import ElasticNet

from rankbench.core.errors import ConfigError
from rankbench.fitting.recommenders import SparseRecommender
from rankbench.solvers.sparse.columns import largest
from rankbench.solvers.sparse.itemknn import ItemKNN, itemknn
from rankbench.solvers.sparse.slim import SLIM, slim

BINARY = arrays(float, (12, 7), elements=st.sampled_from([0.0, 1.0]))


def fitted(method, X, p):
    return method(sp.csr_array(X, dtype=np.float32), p, 0).dense_weights()


def similarity(X, i, j, p):
    """The formula of the module, term by term."""
    a, b, exponent = np.ones(len(X)), np.ones(X.shape[1]), p.alpha if p.similarity == "asymmetric" else 0.5
    if p.weighting != "none" and p.similarity in ("cosine", "asymmetric"):
        a = np.log(X.shape[1] / (1 + X.sum(axis=1)))
        if p.weighting == "bm25":
            length = X.sum(axis=0)
            b = 2.2 / (1 + 1.2 * (0.25 + 0.75 * length / length.mean()))
    Z = a[:, None] * X * b
    c, n_i, n_j = Z[:, i] @ Z[:, j], Z[:, i] @ Z[:, i], Z[:, j] @ Z[:, j]
    if c <= 0:
        return 0.0
    if p.similarity in ("cosine", "asymmetric"):
        return c / (n_i**exponent * n_j ** (1 - exponent) + p.shrink)
    alpha, beta = {"jaccard": (1, 1), "dice": (0.5, 0.5)}.get(p.similarity, (p.alpha, p.beta))
    return c / (c + alpha * (n_j - c) + beta * (n_i - c) + p.shrink)


@settings(max_examples=60)
@given(
    X=BINARY, k=st.integers(1, 9), shrink=st.sampled_from([0.0, 3.0]), alpha=st.floats(0, 2), beta=st.floats(0, 2),
    name=st.sampled_from(["cosine", "asymmetric", "jaccard", "dice", "tversky"]),
    weighting=st.sampled_from(["none", "tf-idf", "bm25"]),
)  # fmt: skip
def test_a_column_has_the_k_largest_similarities_of_the_formula(X, k, shrink, alpha, beta, name, weighting):
    p = ItemKNN(k, shrink, name, alpha, beta, weighting)
    found = fitted(itemknn, X, p)
    for j in range(7):
        expected = np.array([0.0 if i == j else similarity(X, i, j, p) for i in range(7)])
        kept = np.flatnonzero(found[:, j])
        assert_allclose(found[kept, j], expected[kept], rtol=1e-5)
        assert len(kept) == min(k, (expected > 0).sum())
        left = np.delete(expected, kept)
        assert not len(kept) or not len(left) or left.max() <= expected[kept].min() * (1 + 1e-6)


def test_an_exponent_of_the_cosine_by_which_similarities_overflow_is_refused():
    X = np.zeros((3000, 2))
    X[:, 1], X[0, 0] = 1, 1
    assert fitted(itemknn, X, ItemKNN(5, 0.0, "asymmetric", 2.0))[0, 1] == 3000
    with pytest.raises(ConfigError, match=r"alpha, an exponent of the asymmetric cosine, must be ≤ 2, got 12\.0"):
        ItemKNN(5, 0.0, "asymmetric", 12.0)
    assert np.isfinite(fitted(itemknn, X, ItemKNN(5, 0.0, "tversky", 12.0))).all()


def test_the_cosine_is_that_of_the_peer():
    from implicit.nearest_neighbours import CosineRecommender

    X = some_interactions(120, 30)
    peer = CosineRecommender(K=31, num_threads=1)
    peer.fit(sp.csr_matrix(X), show_progress=False)
    expected = peer.similarity.toarray()
    np.fill_diagonal(expected, 0)
    assert_allclose(fitted(itemknn, X, ItemKNN(30, 0.0)), expected, rtol=1e-5, atol=1e-7)


@given(values=arrays(np.float32, st.integers(0, 12), elements=st.sampled_from([0, 0.25, 0.5, 1])), k=st.integers(1, 14))
def test_the_largest_are_the_first_of_a_stable_order(values, k):
    expected = [at for at in np.argsort(-values, kind="stable")[:k] if values[at] > 0]
    assert_array_equal(largest(values, k), sorted(expected))


@pytest.mark.parametrize("alpha, rho", [(0.01, 0.01), (0.1, 0.5), (0.02, 0.001), (0.03, 1.0)])
def test_slim_is_the_elastic_net_of_scikit_learn(alpha, rho):
    """With more items than a column begins with. An item without interactions is in no column."""
    X = some_interactions(200, 60)
    X[:, 7] = 0
    W = fitted(slim, X, SLIM(alpha, rho, 60, 10_000, 1e-9))
    for j in range(60):
        others = X * (np.arange(60) != j)
        peer = ElasticNet(alpha=alpha, l1_ratio=rho, positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000)
        assert_allclose(W[:, j], peer.fit(others, X[:, j]).coef_, atol=1e-6)
    assert (W > 0).any() and not W[7].any() and not W[:, 7].any()
    # Users who are held out, whose rows are empty, do not change the penalty.
    assert_array_equal(fitted(slim, np.vstack([X, np.zeros_like(X[:50])]), SLIM(alpha, rho, 60, 10_000, 1e-9)), W)


@settings(max_examples=25)
@given(X=BINARY, alpha=st.floats(1e-3, 0.5), rho=st.floats(0.01, 1))
@example(X=np.ones((12, 7)), alpha=0.25, rho=0.998)  # equal items, whose weights come close to each other in many small steps
def test_no_weight_of_slim_can_be_moved_to_a_better_place(X, alpha, rho):
    """The conditions of Karush, Kuhn and Tucker: no slope at a weight above zero, and none downward at zero."""
    W = fitted(slim, X, SLIM(alpha, rho, 7, 100_000, 1e-10)).astype(float)
    slope = X.T @ (X @ W - X) / max(X.any(axis=1).sum(), 1) + alpha * rho + alpha * (1 - rho) * W
    inside = W > 1e-6
    np.fill_diagonal(slope, 0)
    assert (W >= 0).all() and not np.diagonal(W).any()
    assert abs(slope[inside]).max(initial=0) < 1e-5 and slope[~inside].min() > -1e-5


def test_of_a_column_of_slim_the_largest_weights_are_kept():
    X = some_interactions(200, 40)
    full, kept = (fitted(slim, X, SLIM(neighbours=k)) for k in (40, 5))
    least = -np.sort(-full, axis=0)[4]
    assert_array_equal(kept, np.where(full >= least, full, 0))


@pytest.mark.parametrize("wrong, message", [
    ({"indptr": np.array([0, 2, 1])}, "do not fit together"),
    ({"indices": np.array([1, 0], np.int32)}, "do not ascend"),
    ({"indices": np.array([0, 2], np.int32)}, "are no items"),
    ({"indices": np.array([0.0, 1.0])}, "int64 and int32"),
    ({"data": np.ones(3)}, "do not fit together"),
])  # fmt: skip
def test_arrays_that_are_no_matrix_are_refused(wrong, message):
    arrays = {"indptr": np.array([0, 2, 2]), "indices": np.array([0, 1], np.int32), "data": np.ones(2)}
    assert SparseRecommender(**arrays).dense_weights().tolist() == [[1, 1], [0, 0]]
    with pytest.raises(ValueError, match=message):
        SparseRecommender(**arrays | wrong)
