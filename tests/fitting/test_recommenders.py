"""The three forms of a model, against dense products: what a ranking masks must be right as well."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.fitting.recommenders import FactorRecommender, LinearRecommender, LowRankRecommender, Recommender, score

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


@SLICES
def test_linear_scores_are_history_times_weights(linear, history, items):
    W = linear.C @ np.diag(linear.beta) + np.diag(linear.alpha)
    assert_allclose(linear.dense_weights(), W, atol=1e-14)
    assert_allclose(score(linear, np.arange(6), history, items), (history @ W)[:, items], atol=1e-12)


@SLICES
def test_low_rank_scores_are_history_times_weights(low_rank, history, items):
    W = low_rank.A @ low_rank.B.T + np.diag(low_rank.alpha)
    assert_allclose(low_rank.dense_weights(), W, atol=1e-14)
    assert_allclose(score(low_rank, np.arange(6), history, items), (history @ W)[:, items], atol=1e-12)


@SLICES
def test_factor_scores_are_products_of_the_factors_of_the_users_asked_for(factors, history, items):
    users = np.array([5, 0, 2])
    assert_allclose(score(factors, users, history[users], items), (factors.U[users] @ factors.V.T)[:, items], atol=1e-12)


@pytest.mark.parametrize("form", ["linear", "low_rank", "factors"])
def test_the_base_is_left_for_the_next_member_of_the_family(form, history, request):
    model: Recommender = request.getfixturevalue(form)
    items = slice(2, 8)
    base = model.base(np.arange(6), history, items, np.empty((6, 6), model.dtype))
    before = base.copy()
    model.finish(base, history, items, np.empty_like(base))
    assert_array_equal(base, before)


def test_a_family_is_one_and_the_same_base(linear, low_rank, factors):
    assert linear.family == LinearRecommender(linear.C, 2 * linear.beta, linear.alpha).family
    assert linear.family != LinearRecommender(linear.C.copy(), linear.beta, linear.alpha).family
    assert low_rank.family == LowRankRecommender(low_rank.A, low_rank.B, -low_rank.alpha).family
    assert low_rank.family != LowRankRecommender(low_rank.A.copy(), low_rank.B, low_rank.alpha).family
    assert factors.family == FactorRecommender(factors.U, factors.V).family
    assert factors.family != FactorRecommender(-factors.U, factors.V).family


def test_all_forms_keep_the_protocol(linear, low_rank, factors):
    for model in (linear, low_rank, factors):
        assert isinstance(model, Recommender)
        assert model.n_items == N_ITEMS
