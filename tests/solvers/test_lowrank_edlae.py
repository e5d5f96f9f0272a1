"""Low-rank EDLAE: each update against the Lagrangian written out, and the end of the path against other optimisers."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from closed_form_oracles import low_rank_weights as weights
from closed_form_oracles import some_interactions
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from rankbench.core.errors import NumericalError
from rankbench.solvers.inverse.lowrank import system, top_eigenvectors
from rankbench.solvers.linear.lowrank_edlae import admm, update_beta, update_U, update_V

BINARY = arrays(float, (9, 6), elements=st.sampled_from([0.0, 1.0]))


draw = partial(some_interactions, least=0.05)


def build(X, p, lam):
    return system(sp.csr_array(X, dtype=np.float32), p, lam)


def off_diagonal(W):
    return W - np.diag(np.diagonal(W))


def objective(X, Lam, W):
    """Eq. 32 of a W whose diagonal does not count."""
    B = off_diagonal(W)
    return ((X - X @ B) ** 2).sum() + (Lam[:, None] * B**2).sum()


def lagrangian(X, Lam, Omega, U, V, beta, gamma):
    """The module's L, term by term."""
    W, D = U @ V.T, np.diag(beta)
    fit, ridge = X + X @ D - X @ W, np.sqrt(Lam)[:, None] * (W - D)
    return (fit**2).sum() + (ridge**2).sum() + (Omega * (np.diagonal(W) - beta + gamma) ** 2).sum()


@pytest.fixture(params=[(0.5, 10.0, 20.0), (0.0, 3.0, 1.0), (0.9, 0.0, 500.0)], ids=str)
def state(request):
    """A point far from any solution: X, the system, Omega and the four blocks; V orthonormal."""
    p, lam, omega = request.param
    rng = np.random.default_rng(0)
    X = draw(50, 12)
    on = build(X, p, lam)
    V = np.linalg.qr(rng.standard_normal((12, 4)))[0]
    U, beta, gamma = rng.standard_normal((12, 4)), rng.standard_normal(12), rng.standard_normal(12)
    return SimpleNamespace(X=X, on=on, Omega=on.Lam + omega, U=U, V=V, beta=beta, gamma=gamma)


def assert_minimal(s, block, value):
    """L is a convex quadratic in one block: the value is its minimum where no direction has a slope."""
    rng = np.random.default_rng(1)
    blocks = {"U": s.U, "V": s.V, "beta": s.beta, "gamma": s.gamma}

    def L(at):
        return lagrangian(s.X, s.on.Lam, s.Omega, **blocks | {block: at})

    for _ in range(20):
        step = rng.standard_normal(value.shape)
        curvature = L(value + step) + L(value - step) - 2 * L(value)
        assert curvature > 0
        assert abs(L(value + step) - L(value - step)) < 1e-7 * curvature


@pytest.mark.parametrize("lost_rank", [False, True])
def test_every_update_minimises_the_lagrangian(state, lost_rank):
    s = state
    U, z = update_U(s.on, s.V, s.beta, s.gamma, s.Omega, np.zeros(12))
    assert_minimal(s, "U", U)
    gap = np.einsum("ij,ij->i", U, s.V) - s.beta + s.gamma
    assert_allclose(z, s.Omega * gap, atol=1e-6 * np.abs(z).max())
    assert_minimal(s, "beta", update_beta(s.on, s.U, s.on.G_times(s.U), s.V, s.gamma, s.Omega))
    if lost_rank:
        s.U[:, 3] = s.U[:, 2]
    V = update_V(s.on, s.U, s.on.G_times(s.U), s.beta, s.gamma, s.Omega)
    assert np.abs(V).max() < 1e3
    assert_minimal(s, "V", V)


@pytest.mark.parametrize("p, lam", [(0.5, 10.0), (0.9, 1.0)])
def test_where_it_ends_beta_is_the_diagonal_and_no_direction_descends(p, lam):
    X = draw(120, 30)
    on = build(X, p, lam)
    U, V, beta, _ = admm(on, top_eigenvectors(on, 5, 0), omega=100.0, iterations=3000)
    assert_allclose(beta, np.diagonal(U @ V.T), atol=1e-7)
    E = off_diagonal(U @ V.T) - np.eye(30)
    slope = off_diagonal(X.T @ X @ E + on.Lam[:, None] * off_diagonal(E))
    scale = np.linalg.norm(X.T @ X)
    assert np.linalg.norm(slope @ V) < 1e-4 * scale * np.linalg.norm(V)
    assert np.linalg.norm(slope.T @ U) < 1e-4 * scale * np.linalg.norm(U)


def restart(X, Lam, k, seed):
    """Where L-BFGS on U and V ends from a random start, and the objective there."""
    G, n = X.T @ X, X.shape[1]

    def value_and_slope(x):
        U, V = x.reshape(2, n, k)
        E = off_diagonal(U @ V.T) - np.eye(n)
        slope = off_diagonal(2 * (G @ E + Lam[:, None] * off_diagonal(E)))
        return objective(X, Lam, U @ V.T), np.concatenate([slope @ V, slope.T @ U]).ravel()

    start = 0.1 * np.random.default_rng(seed).standard_normal(2 * n * k)
    end = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 6000})
    return end.x.reshape(2, n, k), end.fun


@pytest.mark.parametrize("p, lam, k", [(0.5, 10.0, 5), (0.9, 1.0, 3)])
def test_no_other_road_ends_lower(p, lam, k):
    X = draw(120, 30)
    on = build(X, p, lam)
    start = top_eigenvectors(on, k, 0)
    U, V, *_ = admm(on, start, omega=100.0, iterations=400)
    found = objective(X, on.Lam, U @ V.T)
    for (_, other), value in (restart(X, on.Lam, k, seed) for seed in range(2)):
        assert found < 1.002 * value  # local minima lie this close together
        U, V, *_ = admm(on, np.linalg.qr(other)[0], omega=100.0, iterations=400)
        assert objective(X, on.Lam, U @ V.T) < 1.0002 * value  # and from where another road ends, it stays
    # The two shortcuts: no work on the diagonal at all, and the full solution cut to rank k.
    C = np.linalg.inv(X.T @ X + np.diag(on.Lam))
    for W in (C @ X.T @ X @ start @ start.T, np.eye(30) - C / np.diagonal(C)):
        left, s, right = np.linalg.svd(W)
        assert found < objective(X, on.Lam, (left[:, :k] * s[:k]) @ right[:k])


@settings(max_examples=12)
@given(X=BINARY, p=st.floats(0.05, 0.9), lam=st.floats(1.0, 100.0))
def test_of_full_rank_it_is_edlae(X, p, lam):
    X[0, 0] = 1  # an empty matrix is refused
    found = weights(X, "edlae-low-rank", embedding_dim=6, p=p, lam=lam, iterations=200)
    assert_allclose(found, weights(X, "edlae", p=p, lam=lam), atol=1e-6)


def test_the_diagonal_is_zero_and_so_is_an_item_without_interactions():
    X = draw(60, 15)
    X[:, 4] = 0
    W = weights(X, "edlae-low-rank", embedding_dim=3, iterations=5)
    assert_allclose(np.diagonal(W), 0, atol=1e-14)
    assert_array_equal(W[:, 4], 0)
    assert_array_equal(W[4], 0)
    rest = np.delete(np.arange(15), 4)
    alone = weights(X[:, rest], "edlae-low-rank", embedding_dim=3, iterations=5)
    assert_allclose(W[np.ix_(rest, rest)], alone, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_is_a_numerical_error():
    with pytest.raises(NumericalError, match="lower omega"):
        weights(draw(30, 10), "edlae-low-rank", embedding_dim=2, omega=1e308)
