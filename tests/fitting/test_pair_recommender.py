"""The split first layer against the network that reads both vectors side by side, by blocks, slices and types."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import NumericalError
from rankbench.core.threads import pinned
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import rank
from rankbench.fitting import pair_recommender
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import Recommender, score

N_USERS = 9


def network(rng, n_items, d, e, widths, dtype=np.float64):
    """A model of both parts and the function that scores a pair by whole vectors [p, q, u ⊙ v], without splitting."""
    p, q = rng.standard_normal((N_USERS, e)), rng.standard_normal((n_items, e))
    U, V = rng.standard_normal((N_USERS, d)), rng.standard_normal((n_items, d))
    first, bias = rng.standard_normal((2 * e + d, widths[0])), rng.standard_normal(widths[0])
    layers = [(rng.standard_normal((a, b)), rng.standard_normal(b)) for a, b in pairwise(widths)]
    output, direct, last = rng.standard_normal(widths[-1]), rng.standard_normal(d), float(rng.standard_normal())

    def plain(u, i):
        z = np.maximum(np.concatenate([p[u], q[i], U[u] * V[i]]) @ first + bias, 0)
        for W, b in layers:
            z = np.maximum(z @ W + b, 0)
        return z @ output + (U[u] * V[i]) @ direct + last

    arrays = p @ first[:e] + bias, q @ first[e : 2 * e], U, V, first[2 * e :], direct
    typed = [np.ascontiguousarray(array, dtype) for array in arrays]
    own = [(W.astype(dtype), b.astype(dtype)) for W, b in layers]
    return PairRecommender.of(*typed, own, output.astype(dtype), last), plain


def empty(m, n_items):
    return sp.csr_array((m, n_items), dtype=np.float32)


def all_scores(model, users=None):
    users = np.arange(N_USERS) if users is None else users
    return score(model, users, empty(len(users), model.n_items), slice(None))


@given(
    seed=st.integers(0, 2**32 - 1),
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    d=st.integers(1, 5),
    e=st.integers(1, 5),
    start=st.integers(0, 12),
    length=st.integers(1, 12),
    tile=st.integers(1, 8),
)
def test_the_split_network_is_the_whole_one(seed, widths, d, e, start, length, tile):
    rng = np.random.default_rng(seed)
    model, plain = network(rng, 13, d, e, widths)
    items, users = slice(start, min(start + length, 13)), rng.integers(0, N_USERS, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_recommender, "TILE", tile)
        found = score(model, users, empty(4, 13), items)
    assert_allclose(found, [[plain(u, i) for i in range(13)[items]] for u in users], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("part", ["mix", "direct"])
def test_a_part_of_zeros_is_left_out(part):
    model, _ = network(np.random.default_rng(0), 11, 4, 3, [5, 2])
    zero = dataclasses.replace(model, **{part: np.zeros_like(getattr(model, part))})
    tiny = dataclasses.replace(model, **{part: np.full_like(getattr(model, part), 1e-300)})
    assert_allclose(all_scores(zero), all_scores(tiny), rtol=1e-12)


def test_single_precision_is_the_double_one_to_its_rounding():
    (single, _), (double, _) = (network(np.random.default_rng(3), 700, 16, 16, [16, 16], t) for t in (np.float32, np.float64))
    found, expected = all_scores(single), all_scores(double)
    assert found.dtype == np.float32 and np.abs(found - expected).max() < 2e-6 * np.abs(expected).max()


def test_users_have_their_bits_whoever_is_asked_for_beside_them():
    model, _ = network(np.random.default_rng(4), 1300, 16, 16, [16, 16], np.float32)
    whole = all_scores(model)
    for users in (np.array([4]), np.array([8, 4, 4, 0])):
        assert_array_equal(all_scores(model, users), whole[users])


def test_a_ranking_is_that_of_sorted_scores_for_any_number_of_threads():
    rng = np.random.default_rng(5)
    model, plain = network(rng, 40, 3, 3, [4, 4])
    part = rng.integers(0, 3, (N_USERS, 40))
    history, target = (sp.csr_array((part == kind).astype(np.float32)) for kind in (0, 1))
    holdout = Holdout(np.arange(N_USERS, dtype=np.int32), history, target)
    rankings = []
    for n_threads in (1, 2):
        with pinned(n_threads):
            rankings += rank([model], holdout, 6, auc=True, block_users=4, block_items=16)
    for name in ("items", "scores", "auc"):
        assert_array_equal(getattr(rankings[0], name), getattr(rankings[1], name))
    dense = np.array([[plain(u, i) for i in range(40)] for u in range(N_USERS)])
    dense[part == 0] = -np.inf
    assert_array_equal(rankings[0].items, np.argsort(-dense, axis=1, kind="stable")[:, :6])


def test_a_score_that_is_not_a_number_is_an_error():
    model, _ = network(np.random.default_rng(6), 20, 3, 3, [4, 4], np.float32)
    model.C[7, 1] = np.nan
    target = sp.csr_array(np.eye(N_USERS, 20, dtype=np.float32))
    holdout = Holdout(np.arange(N_USERS, dtype=np.int32), empty(N_USERS, 20), target)
    with pytest.raises(NumericalError, match="PairRecommender: a score is not a number"):
        rank([model], holdout, 3)


def test_it_keeps_the_protocol():
    model, _ = network(np.random.default_rng(7), 20, 3, 3, [4, 4])
    assert isinstance(model, Recommender) and model.n_items == 20
    assert model.family == dataclasses.replace(model).family
    assert model.family != dataclasses.replace(model, A=model.A.copy()).family


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": np.zeros((N_USERS, 3))}, "A has the shape"),
        ({"V": np.zeros((19, 3))}, "V has the shape"),
        ({"network": np.zeros(4)}, "network has the shape"),
        ({"widths": np.array([4.0, 4.0])}, "widths are not"),
        ({"widths": np.array([], np.int64)}, "widths are not"),
        ({"widths": np.array([4, -4])}, "widths are not"),
        ({"direct": np.zeros(3, np.float32)}, "not of one type"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    model, _ = network(np.random.default_rng(8), 20, 3, 3, [4, 4])
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(model, **change)
