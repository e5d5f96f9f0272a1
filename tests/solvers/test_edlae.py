"""EDLAE, against its loss in expectation over every dropout mask, and against Steck's closed form."""

from itertools import product

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
from rankbench.solvers.linear.edlae import EDLAE

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
TINY = arrays(float, (4, 3), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE = st.floats(0.05, 0.9), st.floats(0.1, 100.0)


def edlae(X, p, lam):
    (model,) = fit_shared(gram(sp.csr_array(X), np.float64), [(registered().get("edlae"), EDLAE(p, lam))])
    return model.dense_weights()


def minimiser_of_the_expected_loss(X, p, lam):
    """min over w with w_i = 0 of E‖A ∘ (X_i − (Δ ∘ X) w)‖² + λ_E‖w‖², A = 1 where Δ drops entry i of a row, else 0.

    All 2^(m·n) masks Δ are written out as rows of one least squares problem, weighted by their probabilities.
    λ here stands beside the Gram, which the expectation scales by h2 = p(1−p)²: λ_E = λ h2.
    """
    m, n = X.shape
    keep = np.array(list(product([0.0, 1.0], repeat=m * n))).reshape(-1, m, n)
    probability = np.prod(np.where(keep == 1, 1 - p, p), axis=(1, 2))
    W = np.zeros((n, n))
    for i in range(n):
        rest = np.arange(n) != i
        weight = np.sqrt(probability[:, None] * (keep[:, :, i] == 0))
        inputs = (weight[:, :, None] * keep * X)[:, :, rest].reshape(-1, n - 1)
        wanted = (weight * X[:, i]).ravel()
        ridge = np.sqrt(lam * p * (1 - p) ** 2) * np.eye(n - 1)
        W[rest, i] = np.linalg.lstsq(np.vstack([inputs, ridge]), np.r_[wanted, np.zeros(n - 1)], rcond=None)[0]
    return W


@PROPERTY
@given(X=TINY, p=P, lam=RIDGE)
def test_it_minimises_the_expected_loss(X, p, lam):
    assert_allclose(edlae(X, p, lam), minimiser_of_the_expected_loss(X, p, lam), atol=1e-9)


@PROPERTY
@given(X=BINARY, p=P, lam=RIDGE)
def test_it_is_the_closed_form_of_the_paper(X, p, lam):
    G = X.T @ X
    C = np.linalg.inv(G + np.diag(p / (1 - p) * np.diagonal(G)) + lam * np.eye(len(G)))
    expected = (np.eye(len(G)) - C / np.diagonal(C)) / (1 - p)
    assert_allclose(edlae(X, p, lam), expected, atol=1e-10)


@PROPERTY
@given(X=BINARY, lam=RIDGE)
def test_without_dropout_it_is_ease(X, lam):
    solver = registered().get("ease")
    (ease,) = fit_shared(gram(sp.csr_array(X), np.float64), [(solver, solver.params(lam))])
    assert_array_equal(edlae(X, 0.0, lam), ease.dense_weights())


@pytest.mark.parametrize("values", [{"p": 1.0}, {"p": -0.1}, {"lam": -1.0}, {"p": float("nan")}])
def test_values_out_of_range_are_refused(values):
    with pytest.raises(ConfigError, match=f"{next(iter(values))} must"):
        EDLAE(**values)
