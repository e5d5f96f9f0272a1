"""Low-rank DEQL, against its definition with square roots of matrices and a singular value decomposition."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from closed_form_oracles import H, v
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError, DataError, NumericalError
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.solvers.inverse import lowrank

PROPERTY = settings(max_examples=20)
BINARY = arrays(float, (9, 6), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE, B = st.floats(0.05, 0.9) | st.just(0.0), st.floats(0.1, 100.0), st.floats(0.2, 5.0)


def draw(n_users, n_items, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.random((n_users, n_items)) < np.geomspace(0.5, 0.1, n_items)).astype(float)
    X[0] = 1  # no item is empty
    return X


def weights(X, method="deql-low-rank", seed=0, **values):
    (model,) = fit_configs((configure(method, values),), sp.csr_array(X, dtype=np.float32), "float64", seed).models
    return model.dense_weights()


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
@given(X=BINARY, p=P, b=B, i=st.integers(1, 5))
def test_equal_emphases_have_one_matrix_for_all_columns(X, p, b, i):
    assert_allclose(H(X, i, p, b, b), H(X, 0, p, b, b), rtol=1e-12)


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
    full = weights(X, "deql-l2", p=p, a=b, b=b, lam_prime=lam)
    assert_allclose(weights(X, embedding_dim=99, p=p, lam=lam), full, atol=1e-9)


def test_without_any_penalty_it_is_pure_svd():
    X = draw(60, 20)
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


@pytest.mark.parametrize("k", [5, 40])
def test_the_start_vector_moves_rounding_only(k):
    X = draw(300, 100)
    assert_allclose(weights(X, embedding_dim=k, seed=1), weights(X, embedding_dim=k, seed=2), atol=1e-9)


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
@pytest.mark.parametrize("X", [draw(300, 100), np.kron(np.eye(50), np.ones((1, 2)))], ids=["distinct", "all equal"])
def test_lanczos_gives_the_same_bits_even_where_eigenvalues_meet(method, X):
    assert_array_equal(weights(X, method, embedding_dim=5), weights(X, method, embedding_dim=5))


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_an_inverse_in_float32_is_accurate_enough(method, p, monkeypatch):
    X = draw(300, 100)
    exact = weights(X, method, embedding_dim=6, p=p)
    monkeypatch.setattr(lowrank, "FLOAT64_ITEMS", 99)
    found = weights(X, method, embedding_dim=6, p=p)
    assert 0 < np.abs(found - exact).max() < 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize("method", ["deql-low-rank", "edlae-low-rank"])
class TestRefusals:
    def test_a_singular_system(self, method):
        twins = np.repeat(draw(20, 3), 2, axis=1)
        with pytest.raises(NumericalError, match="not positive definite"):
            weights(twins, method, p=0.0, lam=0.0)

    def test_no_interactions(self, method):
        with pytest.raises(DataError, match="no interactions"):
            weights(np.zeros((4, 3)), method)

    def test_eigenvalues_that_are_not_found(self, method, monkeypatch):
        monkeypatch.setattr(lowrank, "eigsh", partial(lowrank.eigsh, maxiter=1))
        with pytest.raises(NumericalError, match="the 5 largest eigenvalues were not found"):
            weights(draw(300, 100), method, embedding_dim=5)

    @pytest.mark.parametrize("values", [{"embedding_dim": 0}, {"p": 1.0}, {"p": float("nan")}, {"lam": -1.0}])
    def test_values_out_of_range(self, method, values):
        with pytest.raises(ConfigError, match=f"{next(iter(values))} must"):
            configure(method, {}).spec.params(**values)
