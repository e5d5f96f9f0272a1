"""Debiased EASE, against its definition, and against the paper's loss with one weight for all users."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.linear.debiased_ease import DebiasedEASE
from rankbench.solvers.linear.ease import EASE

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
RIDGE, ALPHA = st.floats(0.1, 1e3), st.floats(0.0, 0.95)


def weights(X, method, params):
    (model,) = fit_shared(gram(sp.csr_array(X), np.float64), [(registered().get(method), params)])
    return model.dense_weights()


def paper_loss(X, W, c, lam):
    """The debiased squared error as it is summed before Eq. 25, with its λ = 1: positives weigh c, all scores are shrunk."""
    scores = X @ W
    met = X == 1
    positives = c * (scores[met] - 1) ** 2 - c * scores[met] ** 2
    return positives.sum() + (scores**2).sum() + lam * (W**2).sum()


@PROPERTY
@given(X=BINARY, lam=RIDGE, alpha=ALPHA)
def test_it_minimises_its_loss_item_by_item(X, lam, alpha):
    n = X.shape[1]
    expected = np.zeros((n, n))
    for j in range(n):
        rest = np.arange(n) != j
        A = X[:, rest]
        expected[rest, j] = np.linalg.solve((1 - alpha) * A.T @ A + lam * np.eye(n - 1), A.T @ X[:, j])
    assert_allclose(weights(X, "debiased-ease", DebiasedEASE(lam, alpha)), expected, atol=1e-9)


@PROPERTY
@given(X=BINARY, lam=RIDGE, alpha=ALPHA)
def test_it_is_ease_scaled_and_the_plan_knows(X, lam, alpha):
    p, same = DebiasedEASE(lam, alpha), EASE(lam / (1 - alpha))
    assert_allclose(weights(X, "debiased-ease", p), weights(X, "ease", same) / (1 - alpha), atol=1e-9)
    assert registered().get("debiased-ease").identity_of(p) == registered().get("ease").identity_of(same)
    assert registered().get("debiased-ease").share_key(p) == registered().get("ease").share_key(same)


@pytest.mark.parametrize("c", [1.5, 2.0, 6.0])  # with the α that is printed, c − 1, nothing from 2 on would have a minimum
def test_the_alpha_of_a_weight_c_is_c_minus_1_over_c(c):
    X = (np.random.default_rng(0).random((40, 7)) < 0.4).astype(float)
    lam = 5.0
    W = weights(X, "debiased-ease", DebiasedEASE(lam / c, (c - 1) / c))
    assert_allclose(W, c * weights(X, "ease", EASE(lam)), atol=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(20):
        step = rng.standard_normal(W.shape) * 1e-3
        np.fill_diagonal(step, 0)
        at, up, down = (paper_loss(X, each, c, lam) for each in (W, W + step, W - step))
        assert up > at
        assert up == pytest.approx(down, abs=1e-4 * (up - at))  # a slope would make them differ


@pytest.mark.parametrize(
    "values", [{"lam": 0.0}, {"lam": float("nan")}, {"alpha": 1.0}, {"alpha": -0.1}, {"alpha": float("nan")}]
)
def test_values_out_of_range_are_refused(values):
    with pytest.raises(ConfigError, match=f"{next(iter(values))} must"):
        DebiasedEASE(**values)
