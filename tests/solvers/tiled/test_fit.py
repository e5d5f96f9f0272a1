"""Models over tiles: the scores of the dense ones, by slices or all at once, and what `fit_shared` refuses."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from small_systems import some_data

from rankbench.core.errors import ConfigError, NumericalError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.fitting.recommenders import LinearRecommender, Recommender, score
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.tiled.recommender import fit_tiled

pytestmark = pytest.mark.usefixtures("unflushed")

USERS, N_ITEMS, PLENTY = np.arange(40), 23, 10**9
FAMILIES = [
    [("ease", {"lam": 5.0}), ("edlae", {"p": 0.0, "lam": 5.0})],
    [("edlae", {"p": 0.5, "lam": 3.0}), ("dlae", {"p": 0.5, "lam": 3.0})]
    + [("deql-l2", {"p": 0.5, "b": b, "lam_prime": 3.0}) for b in (0.3, 1.0, 2.0)],
    [("debiased-ease", {"alpha": 0.2, "lam": 8.0})],
]


def members(named):
    return [(solver := registered().get(method), solver.params(**values)) for method, values in named]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_closed_form_scores_as_the_dense_one(tmp_path, family):
    X = some_data(40, N_ITEMS)
    dense = fit_shared(gram(X, np.float64), members(family))
    tiled = fit_tiled(X, members(family), tmp_path, PLENTY, np.float64)
    assert len({model.family for model in tiled}) == 1
    for one, other in zip(tiled, dense, strict=True):
        assert isinstance(one, Recommender)
        expected = score(other, USERS, X, slice(None))
        assert_allclose(score(one, USERS, X, slice(None)), expected, atol=1e-10)
        assert_allclose(score(one, USERS, X, slice(5, 11)), expected[:, 5:11], atol=1e-10)


def test_columns_that_are_held_score_to_the_bit_as_those_that_are_read(tmp_path):
    X = some_data(40, N_ITEMS)
    (model,) = fit_tiled(X, members(FAMILIES[0][:1]), tmp_path, PLENTY)
    dense = LinearRecommender(model.C.columns(0, N_ITEMS), model.beta, model.alpha)
    held = model.hold(slice(4, 12))
    for items in (slice(4, 12), slice(6, 9), slice(0, 5), slice(11, N_ITEMS), slice(None)):
        expected = score(dense, USERS, X, items)
        assert_array_equal(score(model, USERS, X, items), expected)
        assert_array_equal(score(held, USERS, X, items), expected)
    data = pickle.dumps(model)  # it goes to another process by its folder
    assert len(data) < 10_000
    assert_array_equal(score(pickle.loads(data), USERS, X, slice(None)), score(model, USERS, X, slice(None)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_the_dense_fit_refuses_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="2 different systems"):
        fit_tiled(some_data(9, 4), members([("ease", {"lam": 1.0}), ("ease", {"lam": 2.0})]), tmp_path, PLENTY)
    with pytest.raises(NumericalError, match="ease: column 0 is not finite"):
        fit_tiled(sp.csr_array(np.eye(2, dtype=np.float32)), members([("ease", {"lam": 1e39})]), tmp_path, PLENTY)
