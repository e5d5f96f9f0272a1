"""What every registered method keeps; a new file in solvers/ is held to it by existing."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core import threads
from rankbench.core.config import parameters
from rankbench.core.errors import ConfigError
from rankbench.data.blocks import csr_from_pairs
from rankbench.data.prepare import load
from rankbench.data.splits import Holdout
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.recommenders import FactorRecommender, Recommender, score
from rankbench.solvers.als.fold_in import FoldInRecommender
from rankbench.training.methods import Trained

METHODS = [spec.name for spec in registered() if not isinstance(spec, Trained)]  # those have a contract of their own
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
N_USERS, N_ITEMS = 80, 30
# What a user gets is drawn for the row, whatever the user has met: the scores, or the vector that training starts from.
DRAWS_USERS = {"random", "rg2-newton-mlp"}
# Scores that no history changes.
IGNORES_HISTORY = {"popularity", "random"}
METRICS = metric_set(["recall", "ndcg", "map", "precision"], [5, 10])


@pytest.fixture
def data():
    """(X, holdout): random interactions of items that differ in popularity, none of them empty."""
    rng = np.random.default_rng(5)
    met = rng.random((N_USERS, N_ITEMS)) < np.geomspace(0.6, 0.1, N_ITEMS)
    target = met & (rng.random(met.shape) < 0.25)
    X, held = (csr_from_pairs(*np.nonzero(part), met.shape) for part in (met & ~target, target))
    assert X.sum(axis=0).all()
    return X, Holdout(np.arange(N_USERS, dtype=np.int32), X, held)


def fit(method, X, dtype="float32", seed=0):
    (model,) = fit_configs((configure(method, {}),), X, dtype, seed).models
    return model


def scores(model, X):
    return score(model, np.arange(X.shape[0], dtype=np.int32), X, slice(0, X.shape[1]))


def means(method, X, holdout, dtype):
    (ranking,) = rank([fit(method, X, dtype)], holdout, METRICS.k)
    counts = np.bincount(X.indices, minlength=X.shape[1])
    return {name: value.mean() for name, value in measure(ranking, holdout.target, counts, METRICS).values.items()}


def test_the_contract_found_the_methods():
    closed_forms = {"ease", "debiased-ease", "edlae", "dlae", "deql", "deql-l2", "deql-l2-zero-diag"}
    assert {"ials", "wrmf", "debiased-ials", "rg2", "rg2-sampled", "rgx", "rgx-paper", "rg-authors"} <= set(METHODS)
    assert closed_forms | {"deql-low-rank", "edlae-low-rank"} | {"popularity", "random"} <= set(METHODS)


@EVERY_METHOD
def test_default_parameters_give_finite_scores_of_the_right_shape(method, data):
    X, _ = data
    model = fit(method, X)
    assert isinstance(model, Recommender)
    assert model.n_items == N_ITEMS
    whole = scores(model, X)
    assert whole.shape == (N_USERS, N_ITEMS)
    assert np.isfinite(whole).all()
    some = np.array([7, 3], np.int32)
    assert_allclose(score(model, some, X[some], slice(4, 11)), whole[some, 4:11], rtol=1e-6, atol=1e-7)


@EVERY_METHOD
def test_the_same_seed_gives_the_same_bits(method, data):
    X, _ = data
    assert_array_equal(scores(fit(method, X, seed=3), X), scores(fit(method, X, seed=3), X))


@EVERY_METHOD
def test_the_number_of_threads_changes_no_ranking(method, data):
    X, holdout = data
    found = []
    for n_threads in (1, 2):
        with threads.pinned(n_threads):
            (ranking,) = rank([fit(method, X)], holdout, 10)
            found.append(ranking.items)
    assert_array_equal(*found)


@EVERY_METHOD
def test_float32_measures_what_float64_measures(method, data):
    X, holdout = data
    assert means(method, X, holdout, "float32") == pytest.approx(means(method, X, holdout, "float64"), abs=1e-3)


@EVERY_METHOD
def test_fitting_leaves_its_input_as_it_was(method, data):
    X, _ = data
    before = X.copy()
    fit(method, X)
    for part in ("indptr", "indices", "data"):
        assert_array_equal(getattr(X, part), getattr(before, part))


@EVERY_METHOD
def test_linear_weights_score_the_history_of_a_user_who_was_not_fitted(method, data):
    X, _ = data
    model = fit(method, X)
    if isinstance(model, FactorRecommender):
        assert method in IGNORES_HISTORY or not registered().get(method).folds or type(model) is FoldInRecommender
        return
    unseen = sp.csr_array((np.random.default_rng(9).random((N_USERS + 20, N_ITEMS)) < 0.3).astype(np.float32))
    unseen = sp.vstack([unseen, sp.csr_array((1, N_ITEMS), dtype=np.float32)], format="csr")  # the last has no history
    W = model.dense_weights()
    assert_allclose(scores(model, unseen), unseen @ W, rtol=1e-4, atol=1e-5 * np.abs(W).max())


@EVERY_METHOD
def test_factors_that_fold_in_give_a_stranger_with_a_users_history_the_users_scores(method, data):
    X, _ = data
    model = fit(method, X, "float64")
    if type(model) is not FoldInRecommender:
        return
    strangers = np.arange(N_USERS, 2 * N_USERS, dtype=np.int32)
    assert_allclose(score(model, strangers, X, slice(0, N_ITEMS)), scores(model, X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in DRAWS_USERS])
def test_renaming_users_permutes_their_scores(method, data):
    X, _ = data
    order = np.random.default_rng(0).permutation(N_USERS)
    permuted = sp.csr_array(X[order])
    found, expected = (scores(fit(method, of, "float64"), of) for of in (permuted, X))
    assert_allclose(found, expected[order], rtol=1e-5, atol=1e-6)


def test_parameters_survive_a_round_trip():
    for method in METHODS:
        params = registered().get(method).params
        assert parameters(params, dataclasses.asdict(params()), method) == params()


def test_every_parameter_says_what_it_is():
    for method in METHODS:
        for field in registered().get(method).fields():
            assert field.metadata["help"], field.name
            assert field.metadata["search"], field.name


def test_a_misspelt_or_unknown_parameter_is_refused_with_the_nearest_name():
    for method in registered():
        for name in (field.name for field in method.fields()):
            with pytest.raises(ConfigError, match=rf"{method.name}: unknown parameter '{name}x'; did you mean {name}\?"):
                configure(method.name, {f"{name}x": 1})
        with pytest.raises(ConfigError, match=f"{method.name}: unknown parameter 'zzz'"):
            configure(method.name, {"zzz": 1})


@pytest.mark.mirror
@pytest.mark.parametrize("method", ["ease", "edlae", "deql-l2"])
def test_float32_measures_what_float64_measures_on_real_data(method, movielens_1m):
    X, holdout = movielens_1m
    assert means(method, X, holdout, "float32") == pytest.approx(means(method, X, holdout, "float64"), abs=1e-4)


@pytest.fixture
def movielens_1m(mirror_environment):
    split = load("movielens-1m", mirror_environment).split
    return split.fit_matrix("train+valid"), split.holdout("test", "train+valid")
