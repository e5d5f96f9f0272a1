"""Low-rank DEQL, against its definition with square roots of matrices and a singular value decomposition."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from closed_form_oracles import H, low_rank_weights, some_interactions, v
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError, DataError, NumericalError
from rankbench.experiment.job import configure
from rankbench.solvers.inverse import lowrank

PROPERTY = settings(max_examples=20)
BINARY = arrays(float, (9, 6), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE, B = st.floats(0.05, 0.9) | st.just(0.0), st.floats(0.1, 100.0), st.floats(0.2, 5.0)


draw = partial(some_interactions, least=0.1)
weights = partial(low_rank_weights, method="deql-low-rank")


def moments(X, p, b, lam):
    """Σxx and Σxy of Theorem B.1, from Lemma 3.2 at a = b; λ stands beside the Gram."""
    n = X.shape[1]
    Sxx = H(X, 0, p, b, b) + lam * (1 - p) ** 2 * b**2 * np.eye(n)
    return Sxx, np.column_stack([v(X, i, p, b, b) for i in range(n)])


def definition(X, k, p, b, lam):
    """Eq. 35."""
    Sxx, Sxy = moments(X, p, b, lam)
    root = np.linalg.inv(scipy.linalg.sqrtm(Sxx))
    U, s, Vt = np.linalg.svd(root @ Sxy)
    return root @ (U[:, :k] * s[:k]) @ Vt[:k]


def loss(X, W, p, b, lam):
    """Eq. 34 without its constant term."""
    Sxx, Sxy = moments(X, p, b, lam)
    return np.trace(W.T @ Sxx @ W - 2 * W.T @ Sxy)


@PROPERTY
@given(X=BINARY, k=st.integers(1, 6), p=P, b=B, lam=RIDGE)
def test_its_loss_is_the_least_of_rank_k(X, k, p, b, lam):
    X[0, 0] = 1  # an empty matrix is refused
    W = weights(X, embedding_dim=k, p=p, lam=lam)
    least = loss(X, definition(X, k, p, b, lam), p, b, lam)
    assert loss(X, W, p, b, lam) == pytest.approx(least, rel=1e-8)
    assert np.linalg.matrix_rank(W, tol=1e-9) <= k


@pytest.mark.parametrize("n_items, k", [(12, 3), (12, 11), (90, 5)], ids=["dense", "dense, nearly full", "lanczos"])
@pytest.mark.parametrize("p, b, lam", [(0.5, 1.0, 10.0), (0.0, 0.3, 2.0), (0.8, 3.0, 0.0)])
def test_it_is_the_definition(n_items, k, p, b, lam):
    X = draw(3 * n_items, n_items)
    expected = definition(X, k, p, b, lam)
    assert_allclose(weights(X, embedding_dim=k, p=p, lam=lam), expected, atol=1e-8 * np.abs(expected).max())


@PROPERTY
@given(X=BINARY, p=P, b=B, lam=RIDGE)
def test_of_full_rank_it_is_deql_at_equal_emphases(X, p, b, lam):
    X[0, 0] = 1
    full = weights(X, method="deql-l2", p=p, a=b, b=b, lam_prime=lam)
    assert_allclose(weights(X, embedding_dim=99, p=p, lam=lam), full, atol=1e-9)


@pytest.mark.parametrize("n_users", [60, 15], ids=["", "whose Gram matrix has no inverse"])
def test_without_any_penalty_it_is_pure_svd(n_users):
    X = draw(n_users, 20)
    V = np.linalg.svd(X)[2][:4].T
    assert_allclose(weights(X, embedding_dim=4, p=0.0, lam=0.0), V @ V.T, atol=1e-9)


def test_an_item_without_interactions_has_no_weights():
    X = draw(30, 10)
    X[:, [2, 7]] = 0
    others = [0, 1, 3, 4, 5, 6, 8, 9]
    W = weights(X, embedding_dim=3, lam=0.0)
    assert_array_equal(W[:, [2, 7]], 0)
    assert_array_equal(W[[2, 7]], 0)
    assert_allclose(W[np.ix_(others, others)], weights(X[:, others], embedding_dim=3, lam=0.0), atol=1e-12)


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_an_inverse_in_float32_is_accurate_enough(method, p, monkeypatch):
    X = draw(300, 100)
    exact = weights(X, method=method, embedding_dim=6, p=p)
    monkeypatch.setattr(lowrank, "FLOAT64_ITEMS", 99)
    found = weights(X, method=method, embedding_dim=6, p=p)
    assert 0 < np.abs(found - exact).max() < 1e-3 * np.abs(exact).max()


def test_a_whole_decomposition_stays_in_the_memory_that_is_reserved_for_it(monkeypatch):
    monkeypatch.setattr(lowrank, "FLOAT64_ITEMS", 599)
    on = lowrank.system(sp.csr_array(draw(600, 600), dtype=np.float32), 0.5, 10.0)
    tracemalloc.start()
    lowrank.top_eigenvectors(on, 150, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 * 600**2  # as `estimate.memory` has it beside the inverse


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
def test_equal_eigenvalues_give_the_same_bits_for_a_seed_and_nearly_the_same_for_another(method):
    for X in (draw(300, 100), np.kron(np.eye(50), np.ones((1, 2)))):
        assert_array_equal(weights(X, method=method, embedding_dim=5), weights(X, method=method, embedding_dim=5))
    X = draw(300, 100)
    assert_allclose(
        weights(X, method=method, seed=1, embedding_dim=5), weights(X, method=method, seed=2, embedding_dim=5), atol=1e-8
    )


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
def test_what_cannot_be_solved_is_refused(method, monkeypatch):
    singular = np.repeat(draw(20, 3), 2, axis=1)
    if method == "edlae-low-rank":
        with pytest.raises(NumericalError, match="not positive definite"):
            weights(singular, method=method, p=0.0, lam=0.0)
    else:  # DEQL at p = 0 is PureSVD, which needs no inverse.
        assert np.isfinite(weights(singular, method=method, p=0.0, lam=0.0)).all()
    with pytest.raises(DataError, match="no interactions"):
        weights(np.zeros((4, 3)), method=method)
    for values in ({"embedding_dim": 0}, {"p": 1.0}, {"lam": float("nan")}):
        with pytest.raises(ConfigError, match=f"{next(iter(values))} must"):
            configure(method, values)
    monkeypatch.setattr(lowrank, "eigsh", partial(lowrank.eigsh, maxiter=1))
    with pytest.raises(NumericalError, match="the 5 largest eigenvalues were not found"):
        weights(draw(300, 100), method=method, embedding_dim=5)
