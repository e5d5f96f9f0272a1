"""The five forms of a model, against dense products: what a ranking masks must be right as well."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.fitting import recommenders
from rankbench.fitting.recommenders import (
    AutoencoderRecommender,
    FactorRecommender,
    LinearRecommender,
    LowRankRecommender,
    Recommender,
    SparseRecommender,
    score,
)

N_ITEMS = 11
SLICES = pytest.mark.parametrize("items", [slice(0, N_ITEMS), slice(0, 4), slice(4, 9), slice(9, 40), slice(None)], ids=str)


@pytest.fixture
def history():
    return sp.csr_array((np.random.default_rng(0).random((6, N_ITEMS)) < 0.4).astype(np.float32))


@pytest.fixture
def linear():
    rng = np.random.default_rng(1)
    half = rng.standard_normal((N_ITEMS, N_ITEMS))
    return LinearRecommender(half + half.T, *rng.standard_normal((2, N_ITEMS)))


@pytest.fixture
def factors():
    rng = np.random.default_rng(2)
    return FactorRecommender(rng.standard_normal((6, 3)), rng.standard_normal((N_ITEMS, 3)))


@pytest.fixture
def low_rank():
    rng = np.random.default_rng(3)
    return LowRankRecommender(*rng.standard_normal((2, N_ITEMS, 3)), rng.standard_normal(N_ITEMS))


@pytest.fixture
def sparse():
    rng = np.random.default_rng(5)
    W = sp.csr_array(rng.standard_normal((N_ITEMS, N_ITEMS)) * (rng.random((N_ITEMS, N_ITEMS)) < 0.3))
    return SparseRecommender(W.indptr.astype(np.int64), W.indices.astype(np.int32), W.data)


@pytest.fixture
def autoencoder():
    rng = np.random.default_rng(4)
    shapes = {"Q1": (N_ITEMS, 5), "q1": 5, "Q2": (5, 2), "q2": 2, "P1": (2, 4), "p1": 4, "V": (N_ITEMS, 5)}
    return AutoencoderRecommender(**{name: rng.standard_normal(shape) for name, shape in shapes.items()})


@SLICES
def test_scores_are_history_times_weights_or_products_of_factors(linear, low_rank, sparse, factors, history, items):
    for model, W in (
        (linear, linear.C @ np.diag(linear.beta) + np.diag(linear.alpha)),
        (low_rank, low_rank.A @ low_rank.B.T + np.diag(low_rank.alpha)),
        (sparse, sp.csr_array((sparse.data, sparse.indices, sparse.indptr)).toarray()),
    ):
        assert_allclose(model.dense_weights(), W, atol=1e-14)
        assert_allclose(score(model, np.arange(6), history, items), (history @ W)[:, items], atol=1e-12)
    users = np.array([5, 0, 2])
    assert_allclose(score(factors, users, history[users], items), (factors.U[users] @ factors.V.T)[:, items], atol=1e-12)


@SLICES
@pytest.mark.parametrize("at_once", [2, 1024])
def test_autoencoder_scores_are_the_decoded_code_of_the_history(autoencoder, history, items, at_once, monkeypatch):
    """A user without interactions included; the ids of the users do not count."""
    monkeypatch.setattr(recommenders, "_ENCODED", at_once)
    history = sp.csr_array(history.toarray() * (np.arange(6) != 2)[:, None])
    a, x = autoencoder, history.toarray().astype(np.float64)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    g = np.tanh((np.tanh(x @ a.Q1 + a.q1) @ a.Q2 + a.q2) @ a.P1 + a.p1)
    expected = (g @ a.V[:, :-1].T + a.V[:, -1])[:, items]
    assert_allclose(score(a, np.array([5, 90, 2, 0, 7, 1]), history, items), expected, atol=1e-12)
    start, stop, _ = items.indices(N_ITEMS)
    base = a.base(np.arange(6), history, items, np.empty((6, stop - start)))
    assert_allclose(a.finish(base, history, items, np.empty_like(base)), expected, atol=1e-12)


def test_an_autoencoder_whose_parts_do_not_fit_is_refused(autoencoder):
    with pytest.raises(ValueError, match="V has 4 columns, expected one more than the 4 of p1"):
        dataclasses.replace(autoencoder, V=autoencoder.V[:, 1:])


@pytest.mark.parametrize("form", ["linear", "low_rank", "sparse", "factors", "autoencoder"])
def test_the_base_is_left_for_the_next_member_of_the_family(form, history, request):
    model: Recommender = request.getfixturevalue(form)
    items = slice(2, 8)
    base = model.base(np.arange(6), history, items, np.empty((6, 6), model.dtype))
    before = base.copy()
    model.finish(base, history, items, np.empty_like(base))
    assert_array_equal(base, before)


def test_a_family_is_one_and_the_same_base(linear, low_rank, factors, autoencoder):
    for model, own, shared in ((linear, "beta", "C"), (low_rank, "alpha", "A"), (factors, "", "U"), (autoencoder, "p1", "V")):
        assert isinstance(model, Recommender) and model.n_items == N_ITEMS
        same = dataclasses.replace(model, **({own: 2 * getattr(model, own)} if own else {}))
        assert same.family == model.family
        assert dataclasses.replace(model, **{shared: getattr(model, shared).copy()}).family != model.family
