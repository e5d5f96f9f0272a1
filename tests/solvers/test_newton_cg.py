"""RG² by Newton-CG: loss, gradient and Gauss-Newton products against dense definitions; the minimum against the singular value
decomposition and alternating least squares.
"""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from rankbench.core.errors import NumericalError
from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.solvers.newton import newton_cg as newton
from rankbench.solvers.newton.newton_cg import RG2Newton, RG2NewtonMLP

N_USERS, N_ITEMS = 9, 7
MF = RG2Newton(embedding_dim=3, lam=0.3)
PRODUCT = RG2Newton(embedding_dim=3, lam=0.3, regulariser="product")
MLP = RG2NewtonMLP(embedding_dim=3, hidden_dim=4, lam=0.2)
EVERY_MODEL = pytest.mark.parametrize("p", [MF, PRODUCT, MLP], ids=["mf", "product", "mlp"])
BOTH = pytest.mark.parametrize("name", ["rg2-newton", "rg2-newton-mlp"])


def interactions(n_users=N_USERS, n_items=N_ITEMS, seed=0):
    """0/1 CSR whose first user and last item have no interactions."""
    met = np.random.default_rng(seed).random((n_users, n_items)) < np.geomspace(0.7, 0.2, n_items)
    met[0], met[:, -1] = False, False
    return csr_from_pairs(*np.nonzero(met), met.shape)


def model_at_random(p, X, seed=3):
    """(model, parameters) with nothing at zero."""
    build = newton.towers if isinstance(p, RG2NewtonMLP) else newton.vectors
    model, values = build(X, p, 0, np.float64)
    return model, np.random.default_rng(seed).standard_normal(len(values))


def outputs(p, shape, values):
    """P and Q of a model, in torch, from the flat parameters."""
    dim, parts = p.embedding_dim, []

    def take(*size):
        nonlocal values
        n = int(np.prod(size))
        taken, values = values[:n].reshape(size), values[n:]
        return taken

    for n in shape:
        rows = take(n, dim)
        if isinstance(p, RG2NewtonMLP):
            A, a, B, b = take(dim, p.hidden_dim), take(p.hidden_dim), take(p.hidden_dim, dim), take(dim)
            rows = torch.relu(rows @ A + a) @ B + b
        parts.append(rows)
    assert not len(values)
    return parts


def printed_loss(p, X, values):
    """Per interaction, as the paper prints it, over all scores; `values` a torch tensor."""
    P, Q = outputs(p, X.shape, values)
    R = torch.from_numpy(X.toarray()).double()
    n, N, o = R.sum(1), X.shape[1], P @ Q.T
    total = -(R * o).sum() + (n[:, None] * (o + 1).square()).sum() / (2 * N)
    if isinstance(p, RG2NewtonMLP):
        total = total + p.lam * values.square().sum()
    elif p.regulariser == "product":
        total = total + p.lam / (2 * N) * o.square().sum()
    else:
        total = total + p.lam * ((n / 2) @ P.square().sum(1) + n.sum() / (2 * N) * Q.square().sum())
    return total / n.sum()


def gauss_newton(p, X, values):
    """JᵀWJ of the scores of all pairs, and the second derivative of the regulariser, as a matrix."""
    theta = torch.from_numpy(values)

    def scores(v):
        P, Q = outputs(p, X.shape, v)
        return (P @ Q.T).reshape(-1)

    J = torch.func.jacrev(scores)(theta).numpy()
    n, N = np.diff(X.indptr), X.shape[1]
    weight = np.repeat(n / N, N)
    if isinstance(p, RG2NewtonMLP):
        ridge = np.full(len(values), 2 * p.lam)
    elif p.regulariser == "product":
        weight, ridge = weight + p.lam / N, np.zeros(len(values))
    else:
        ridge = np.concatenate([np.repeat(p.lam * n, p.embedding_dim), np.full(N * p.embedding_dim, p.lam * n.sum() / N)])
    return (J.T @ (weight[:, None] * J) + np.diag(ridge)) / n.sum()


def metric(point, size):
    """The metric as a matrix: what a damping of 1 adds."""
    return np.stack([point.product(e, 1.0) - point.product(e, 0.0) for e in np.eye(size)])


def fit(name, X, seed=0, dtype=np.float64, **values):
    """(model, losses)."""
    losses = []
    observe = lambda step: losses.append(step.loss) or {}  # noqa: E731
    configs = (configure(name, values),)
    return fit_configs(configs, X, np.dtype(dtype).name, seed, observe=observe).models[0], losses


@EVERY_MODEL
def test_loss_gradient_and_gauss_newton_products_are_those_of_the_printed_loss(p):
    X = interactions()
    model, values = model_at_random(p, X)
    point, theta = model(values), torch.from_numpy(values)
    assert point.loss == pytest.approx(printed_loss(p, X, theta).item(), rel=1e-12)
    assert model_at_random(p, X)[0](values.astype(np.float32)).loss == pytest.approx(point.loss, rel=1e-5)
    expected = torch.func.grad(lambda v: printed_loss(p, X, v))(theta).numpy()
    assert_allclose(point.gradient(), expected, rtol=1e-10, atol=1e-12)
    products = np.stack([point.product(e, 0.0) for e in np.eye(len(values))])
    assert_allclose(products, gauss_newton(p, X, values), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [MF, PRODUCT], ids=["mf", "product"])
def test_the_metric_of_vectors_is_the_blocks_of_single_rows(p):
    X = interactions()
    model, values = model_at_random(p, X)
    point, size = model(values), len(values)
    row = np.arange(size) // p.embedding_dim
    M = metric(point, size)
    assert_allclose(M, gauss_newton(p, X, values) * (row[:, None] == row), rtol=1e-10, atol=1e-12)
    inverse = np.stack([point.divide(e) for e in np.eye(size)])
    assert_allclose(inverse, np.linalg.pinv(M), rtol=1e-8, atol=1e-10)
    # The start has the users that minimise the loss for its items.
    start = newton.vectors(X, p, 0, np.float64)[1]
    assert_allclose(point.split(model(start).gradient())[0], 0, atol=1e-12)


@pytest.mark.parametrize("hidden", [1, 4])
def test_the_metric_of_towers_is_the_diagonal_but_for_rows_with_several_units(hidden):
    X, p = interactions(), RG2NewtonMLP(embedding_dim=3, hidden_dim=hidden, lam=0.2)
    model, values = model_at_random(p, X)
    point, size = model(values), len(values)
    M, G = metric(point, size), np.diag(gauss_newton(p, X, values))
    exact = np.ones(size, bool)
    if hidden > 1:
        exact[: N_USERS * 3] = exact[point.users.tower.size :][: N_ITEMS * 3] = False
    assert_allclose(M, np.diag(np.diag(M)), atol=1e-12)
    assert_allclose(np.diag(M)[exact], G[exact], rtol=1e-10)
    assert (np.diag(M) > 0).all()
    assert_allclose(point.divide(np.ones(size)), 1 / np.diag(M), rtol=1e-8)


def test_conjugate_gradients_end_at_their_tolerance_or_their_steps():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((30, 30))
    A, b, D = root @ root.T + np.eye(30), rng.standard_normal(30), np.geomspace(1, 5, 30)

    def residual(**values):
        x = newton.conjugate_gradients(lambda v: A @ v, lambda r: r / D, b, RG2Newton(**values))
        r = b - A @ x
        return np.sqrt((r @ (r / D)) / (b @ (b / D)))

    assert residual(cg_tolerance=0.9, cg_steps=100) <= 0.9
    assert residual(cg_tolerance=1e-8, cg_steps=1000) <= 1e-7
    assert residual(cg_tolerance=1e-8, cg_steps=3) > 1e-3


@BOTH
@given(
    seed=st.integers(0, 50),
    lam=st.sampled_from([0.0, 0.01, 1.0]),
    scale=st.sampled_from([0.01, 1.0, 10.0]),
    cg_steps=st.integers(1, 10),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=15)
def test_the_loss_never_rises(name, seed, lam, scale, cg_steps, dtype):
    X = interactions(30, 12, seed)
    _, losses = fit(name, X, seed, dtype, embedding_dim=4, iterations=15, lam=lam, init_scale=scale, cg_steps=cg_steps)
    assert len(losses) > 3
    assert (np.diff(losses) <= 0).all()


def least_loss(X, lam, dim):
    """The minimum of rg2's loss per interaction: with vectors scaled by the roots of their ridges it is the best matrix of rank
    `dim` in the squared distance to W^½ S plus twice a multiple of its nuclear norm: singular values cut and shrunk.
    """
    R = X.toarray().astype(np.float64)
    n, N = R.sum(1, keepdims=True), X.shape[1]
    W = n / (2 * N)
    target = np.sqrt(W) * (R * N / np.maximum(n, 1) - 1)
    singular = np.linalg.svd(target, compute_uv=False)
    shrink = lam * np.sqrt(N * W.sum())
    kept = np.maximum(singular[:dim] - shrink, 0)
    constant = n.sum() - (n > 0).sum() * N / 2
    return ((singular**2).sum() - (kept**2).sum() + constant) / n.sum()


@pytest.mark.parametrize("lam", [0.0, 0.01, 0.1])
def test_vectors_reach_the_minimum_that_least_squares_reach(lam):
    X = interactions(120, 60)
    best = least_loss(X, lam, 6)
    _, by_als = fit("rg2", X, embedding_dim=6, iterations=400, lam=lam)
    assert by_als[-1] == pytest.approx(best, rel=1e-3)
    for seed in range(2):
        _, losses = fit("rg2-newton", X, seed, embedding_dim=6, iterations=200, lam=lam)
        assert losses[-1] == pytest.approx(best, rel=1e-3)
        assert losses[-1] >= best - 1e-9


@BOTH
def test_no_array_of_users_by_items_is_made(name):
    n, rng = 20_000, np.random.default_rng(0)
    places = np.unique(rng.integers(0, n, (40_000, 2)), axis=0)
    X = csr_from_pairs(places[:, 0], places[:, 1], (n, n))
    values = {"embedding_dim": 8, "iterations": 2, "cg_steps": 3} | ({"hidden_dim": 8} if name.endswith("mlp") else {})
    tracemalloc.start()
    fit(name, X, dtype=np.float32, **values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * (2 * n * 8 * 4)  # 77 MB: some dozens of arrays of vectors; a byte a pair would be 400 MB


def test_users_without_interactions_get_zeros():
    X = interactions(40, 20)
    model, _ = fit("rg2-newton", X, embedding_dim=4)
    assert not model.U[0].any()
    assert model.U[1:].any(axis=1).all()
    model, losses = fit("rg2-newton", sp.csr_array((5, 4), dtype=np.float32), embedding_dim=2)
    assert losses == [] and not model.U.any()


def test_it_stops_where_an_iteration_gains_too_little():
    X = interactions(60, 25)
    _, whole = fit("rg2-newton", X, embedding_dim=4, iterations=100)
    _, short = fit("rg2-newton", X, embedding_dim=4, iterations=100, tolerance=1e-3)
    assert short == whole[: len(short)]
    assert len(short) < len(whole)
    gains = -np.diff(short) / np.abs(short[1:])
    assert gains[-1] < 1e-3 <= gains[1:-1].min()


@BOTH
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_loss_beyond_floats_is_named_and_nothing_else_is_said(name):
    with pytest.raises(NumericalError, match="lower init_scale"):
        fit(name, interactions(), dtype=np.float32, embedding_dim=3, init_scale=1e30)
