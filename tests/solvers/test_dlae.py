"""DLAE, against its loss in expectation over every dropout mask, and as the DEQL of equal emphases that it is."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from deql_oracles import direct
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.linear.deql import DEQL, DEQLL2
from rankbench.solvers.linear.dlae import DLAE

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
TINY = arrays(float, (4, 3), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE = st.floats(0.05, 0.9), st.floats(0.1, 100.0)


def dlae(X, p, lam):
    (model,) = fit_shared(gram(sp.csr_array(X), np.float64), [(registered().get("dlae"), DLAE(p, lam))])
    return model.dense_weights()


@PROPERTY
@given(X=TINY, p=P, lam=RIDGE)
def test_it_minimises_the_expected_loss(X, p, lam):
    # All masks Δ as rows of one least squares problem, weighted by probability; λ beside the Gram is λ(1-p)² beside E.
    m, n = X.shape
    keep = np.array(list(product([0.0, 1.0], repeat=m * n))).reshape(-1, m, n)
    root = np.sqrt(np.prod(np.where(keep == 1, 1 - p, p), axis=(1, 2)))
    inputs = (root[:, None, None] * keep * X).reshape(-1, n)
    wanted = (root[:, None, None] * X).reshape(-1, n)
    ridge = np.sqrt(lam) * (1 - p) * np.eye(n)
    expected = np.linalg.lstsq(np.vstack([inputs, ridge]), np.vstack([wanted, np.zeros((n, n))]), rcond=None)[0]
    assert_allclose(dlae(X, p, lam) / (1 - p), expected, atol=1e-9)


@PROPERTY
@given(X=BINARY, p=P | st.just(0.0), lam=RIDGE, b=st.floats(0.1, 5.0))
def test_it_is_deql_at_equal_emphases_but_for_a_factor(X, p, lam, b):
    expected = direct(X, p, b, b, lam * (1 - p) ** 2 * b**2)
    assert_allclose(dlae(X, p, lam) / (1 - p), expected, atol=1e-9)


@pytest.mark.parametrize("p, lam", [(0.5, 10.0), (0.1, 37.0), (0.7, 1.0), (0.0, 50.0)])
@pytest.mark.parametrize("b", [0.3, 1.0, 7.0])
def test_a_sweep_knows_that_deql_at_equal_emphases_ranks_equally(p, lam, b):
    identity = registered().get("dlae").identity_of(DLAE(p, lam))
    assert registered().get("deql-l2").identity_of(DEQLL2(p, b, b, lam_prime=lam)) == identity
    assert registered().get("deql-l2").identity_of(DEQLL2(p + 0.1, b, b, lam_prime=lam)) != identity
    if p > 0:
        assert registered().get("deql-l2").identity_of(DEQLL2(p, b, 2 * b, lam_prime=lam)) != identity
        assert registered().get("deql").identity_of(DEQL(p, b, b)) == registered().get("dlae").identity_of(DLAE(p, 0.0))


def test_without_dropout_every_emphasis_is_dlae():
    identity = registered().get("dlae").identity_of(DLAE(0.0, 5.0))
    assert registered().get("deql-l2").identity_of(DEQLL2(0.0, 1.0, 0.2, lam_prime=5.0)) == identity


@pytest.mark.parametrize(
    "values, message",
    [
        ({"p": 1.0}, "p must lie in"),
        ({"p": float("nan")}, "p must lie in"),
        ({"lam": -1.0}, "lam must be ≥ 0"),
        ({"p": 0.0, "lam": 0.0}, "give the identity matrix"),
    ],
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        DLAE(**values)
