"""Fitting from one inverse: what is shared, what is refused, what becomes of empty items."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError, NumericalError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.shared import fit_shared, inverse

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))


def members(*named):
    return [(solver := registered().get(method), solver.params(**values)) for method, values in named]


@PROPERTY
@given(X=BINARY, odds=st.floats(0.0, 9.0), ridge=st.floats(0.0, 100.0), empty=st.integers(0, 4))
def test_empty_items_stand_apart_from_the_system_of_the_others(X, odds, ridge, empty):
    X[:, empty] = 0
    met = np.flatnonzero(X.any(axis=0))
    G = X.T @ X
    system = (G + np.diag(odds * np.diagonal(G) + ridge))[np.ix_(met, met)]
    # Equal columns without a ridge are singular: see below.
    assume(len(met) and np.linalg.cond(system) < 1e10)
    C = inverse(gram(sp.csr_array(X), np.float64), Shift(odds, ridge))
    assert_allclose(C[np.ix_(met, met)] @ system, np.eye(len(met)), atol=1e-5)
    assert not C[empty, met].any()


def test_all_members_hold_the_memory_of_the_gram():
    XtX = gram(sp.csr_array(np.eye(4)))
    memory = XtX.matrix
    models = fit_shared(XtX, members(("edlae", {"p": 0.0, "lam": 2.0}), ("ease", {"lam": 2.0})))
    assert all(model.C is memory for model in models)
    with pytest.raises(ConfigError, match="taken before"):
        XtX.take()


def test_different_systems_cannot_share():
    with pytest.raises(ConfigError, match="2 different systems"):
        fit_shared(gram(sp.csr_array(np.eye(4))), members(("ease", {"lam": 1.0}), ("ease", {"lam": 2.0})))


def test_a_singular_system_is_a_numerical_error():
    twins = gram(sp.csr_array(np.ones((3, 2))), np.float64)
    with pytest.raises(NumericalError, match="not positive definite"):
        fit_shared(twins, members(("edlae", {"p": 0.0, "lam": 0.0})))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_column_that_is_not_finite_is_named():
    # A ridge beyond float32: the inverse is 0, and what the method divides by it is infinite.
    with pytest.raises(NumericalError, match="ease: column 0 is not finite"):
        fit_shared(gram(sp.csr_array(np.eye(2))), members(("ease", {"lam": 1e39})))
