"""Ranking by PyTorch's operations against the ranking of the CPU, with whole numbers, so that ties are everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import NumericalError
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import rank
from rankbench.experiment import watch
from rankbench.experiment.watch import ranked
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import AutoencoderRecommender, FactorRecommender
from rankbench.training import device_ranking


def drawn(rng, n_users, n_items, scale):
    part = rng.integers(0, 5, (n_users, n_items))
    part[0, :] = 0  # has met everything
    users = rng.permutation(n_users).astype(np.int32)
    history, target = (sp.csr_array((part == kind).astype(np.float32)) for kind in (0, 1))
    tables = (rng.integers(-scale, scale + 1, (n, 3)).astype(np.float32) for n in (n_users, n_items))
    return FactorRecommender(*tables), Holdout(users, history, target)


def of_pairs(rng, factors, scale):
    """A network of two layers of whole numbers on the vectors of another model."""

    def table(*shape):
        return rng.integers(-scale, scale + 1, shape).astype(np.float32)

    U, V = factors.U, factors.V
    layers = [(table(4, 2), table(2))]
    return PairRecommender.of(table(len(U), 4), table(len(V), 4), U, V, table(3, 4), table(3), layers, table(2), 1.0)


@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 25),
    scale=st.sampled_from([1, 3, 1000]),
    block=st.integers(1, 200),
    pairs=st.booleans(),
)
def test_it_is_the_ranking_of_the_cpu(seed, k, scale, block, pairs):
    rng = np.random.default_rng(seed)
    model, holdout = drawn(rng, 12, 17, 3 if pairs else scale)  # larger numbers of a network are not exact
    model = of_pairs(rng, model, 3) if pairs else model
    chosen = [None, np.array([0, 3, 7]), np.array([5, 2])][rng.integers(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_ranking, "_SCORES", block)
        found = ranked([model], holdout, k, device="cpu:0", rows=chosen)[0]
    (expected,) = rank([model], holdout, k, rows=chosen)
    for name in ("rows", "users", "items", "scores"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.n_tied == expected.n_tied


def test_an_autoencoder_is_ranked_on_the_device(monkeypatch):
    rng = np.random.default_rng(6)
    _, holdout = drawn(rng, 12, 17, 1)
    shapes = {"Q1": (17, 5), "q1": 5, "Q2": (5, 2), "q2": 2, "P1": (2, 4), "p1": 4, "V": (17, 5)}
    model = AutoencoderRecommender(**{name: rng.standard_normal(shape) for name, shape in shapes.items()})
    (expected,) = rank([model], holdout, 5)
    monkeypatch.setattr(watch, "rank", None)  # no list ends between equal scores
    found = ranked([model], holdout, 5, device="cpu:0")[0]
    assert_array_equal(found.items, expected.items)
    assert_allclose(found.scores, expected.scores, rtol=1e-12)


def test_a_score_that_is_not_a_number_is_an_error():
    model, holdout = drawn(np.random.default_rng(1), 4, 6, 2)
    model.V[2, 0] = np.nan
    with pytest.raises(NumericalError, match="a score is not a number"):
        ranked([model], holdout, 3, device="cpu:0")
