"""Thresholds against sorting, regressions against the interval in which the pinball loss is least."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError
from rankbench.losses.sl_at_k import kth_largest
from rankbench.studies.threshold_error import ThresholdError, all_scores, errors, regress, sampled_scores, true_thresholds

K, N_USERS, N_ITEMS = 4, 12, 30


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    U, V = (rng.standard_normal((n, 8)).astype(np.float32) for n in (N_USERS, N_ITEMS))
    return torch.from_numpy(U), torch.from_numpy(V) / 3


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    dense = (rng.random((N_USERS, N_ITEMS)) < 0.2).astype(np.float32)
    dense[:, 0] = 1
    return sp.csr_array(dense)


@pytest.fixture(scope="module")
def ranked(model):
    U, V = model
    return np.sort((U.numpy().astype(float) @ V.numpy().T.astype(float)), axis=1)[:, ::-1]


def others_of(X, users):
    """Every item that a user has not met, in a row; rows are cut to the shortest."""
    rows = [np.setdiff1d(np.arange(N_ITEMS), X.indices[X.indptr[u] : X.indptr[u + 1]]) for u in users]
    return rows


def test_true_thresholds_are_those_of_a_sort(model, ranked):
    kth, after = true_thresholds(*model, K)
    assert_allclose(kth, ranked[:, K - 1], atol=1e-5)
    assert_allclose(after, ranked[:, K], atol=1e-5)


def test_monte_carlo_is_exact_when_nothing_is_left_out_and_too_low_otherwise(model, X, ranked):
    for user in range(N_USERS):
        (others,) = others_of(X, [user])
        whole = sampled_scores(*model, X, np.array([user]), others[None])
        assert kth_largest(whole, K).item() == pytest.approx(ranked[user, K - 1], abs=1e-5)
        some = sampled_scores(*model, X, np.array([user]), others[None, ::3])
        assert kth_largest(some, K).item() <= ranked[user, K - 1] + 1e-5


def test_sampled_scores_are_the_products_of_the_vectors(model, X):
    U, V = model
    users, others = np.array([7, 2]), np.array([[3, 3, 9], [1, 5, 29]])
    s = sampled_scores(U, V, X, users, others)
    dense = U.numpy() @ V.numpy().T
    assert_allclose(s.neg, np.take_along_axis(dense[users], others, axis=1), atol=1e-6)
    own = [dense[user, X.indices[X.indptr[user] : X.indptr[user + 1]]] for user in users]
    assert_allclose(s.all_positives.values, np.concatenate(own), atol=1e-6)
    assert s.all_positives.row.tolist() == [0] * len(own[0]) + [1] * len(own[1])
    assert s.n_interactions.tolist() == [len(part) for part in own]


def test_a_regression_on_every_item_ends_between_the_kth_and_the_next(model, ranked):
    users = np.arange(N_USERS)
    beta = regress(lambda step: all_scores(*model, users), K, passes=1500, rate=0.02)
    found = errors(beta, ranked[:, K - 1], ranked[:, K])
    assert found["outside"] < 0.005
    assert (ranked[:, K - 1] - ranked[:, K]).mean() > 0.02  # so that a wrong rank would be seen


def test_a_regression_on_fresh_samples_comes_close_where_one_sample_cannot(model, X, ranked):
    rng = np.random.default_rng(2)
    users = np.arange(N_USERS)
    pools = others_of(X, users)

    def scores(step):
        return sampled_scores(*model, X, users, np.stack([rng.choice(pool, 5) for pool in pools]))

    learned = errors(regress(scores, K, passes=1500, rate=0.02), ranked[:, K - 1], ranked[:, K])
    drawn = errors(kth_largest(scores(0), K).numpy(), ranked[:, K - 1], ranked[:, K])
    assert learned["outside"] < 0.05 < 0.1 < drawn["outside"]


def test_thresholds_that_would_never_be_set_are_refused():
    with pytest.raises(ConfigError, match="epochs: 4 is below T_beta, so that SL@K would never set"):
        ThresholdError(epochs=4)


def test_errors_are_distances():
    kth, after = np.array([0.5, 0.5, 0.5]), np.array([0.25, 0.25, 0.25])
    found = errors(np.array([0.75, 0.375, 0.0]), kth, after)
    assert found == pytest.approx({"error": 0.875 / 3, "median": 0.25, "bias": -0.375 / 3, "outside": 0.5 / 3}, abs=1e-6)
