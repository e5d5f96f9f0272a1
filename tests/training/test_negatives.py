"""Draws against the distributions that they say they come from. Seeds are fixed, so that a bound is met or not, for good."""

import numpy as np
import pytest
from fits import of_each_row, trainer_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from rankbench.core.errors import DataError
from rankbench.data.blocks import csr_from_pairs
from rankbench.training.draws import drawn_positives
from rankbench.training.negatives import NegativeSampler

N_USERS, N_ITEMS = 6, 10


@pytest.fixture(scope="module")
def X():
    """Users of 1 to 9 of the ten items; nobody has met item 9."""
    rng = np.random.default_rng(0)
    pairs = [(u, i) for u, degree in enumerate([1, 2, 3, 5, 8, 9]) for i in rng.permutation(N_ITEMS - 1)[:degree]]
    return csr_from_pairs(*np.array(pairs).T, (N_USERS, N_ITEMS))


def rows_of(X, repeat=1):
    users = np.repeat(np.arange(N_USERS), np.diff(X.indptr))
    return np.tile(users, repeat), np.tile(X.indices.astype(np.int64), repeat)


def fits(counts, probability):
    """Whether counts came from these probabilities: nothing where there is none, and no chi-square of one in a million."""
    possible = probability > 0
    assert counts[~possible].sum() == 0
    expected = counts.sum() * probability[possible]
    assert expected.min() > 20
    statistic, freedom = ((counts[possible] - expected) ** 2 / expected).sum(), possible.sum() - 1
    return freedom == 0 or statistic < chi2.isf(1e-6, freedom)


def law(X, kind, power, user):
    """The probability of each item, by the definition of the sampler."""
    met = X.toarray().astype(np.float64)
    counts = met.sum(axis=0)
    weight = {
        "uniform-all": np.ones(N_ITEMS),
        "uniform-other": 1 - met[user],
        "popularity": counts**power,
        "in-batch": counts,
    }[kind]
    return weight / weight.sum()


@pytest.mark.parametrize(
    ("kind", "shared", "power"),
    [
        ("uniform-all", False, 1.0),
        ("uniform-all", True, 1.0),
        ("uniform-other", False, 1.0),
        ("popularity", False, 1.0),
        ("popularity", False, 0.5),
        ("popularity", False, 0.0),
        ("popularity", True, 0.5),
    ],
)
def test_draws_follow_their_law(kind, shared, power, X):
    sampler = NegativeSampler(X, kind, 40_000 if shared else 400, shared, power)
    users, items = rows_of(X, repeat=1 if shared else 20)
    drawn = sampler.draw(0, 1, 0, users, items).items
    assert drawn.shape == ((1, 40_000) if shared else (len(users), 400))
    for user in [0] if shared else range(N_USERS):
        mine = drawn if shared else drawn[users == user]
        assert fits(np.bincount(mine.ravel(), minlength=N_ITEMS), law(X, kind, power, user))


@pytest.mark.parametrize("kind", ["uniform-all", "uniform-other", "popularity"])
@pytest.mark.parametrize("second", ["the next of the row", "that of the next row", "that of the next batch"])
def test_two_draws_are_independent(kind, second, X):
    """Of user 2, who has met three items, so that a third of the uniform-other draws is drawn again."""
    users, items = np.full(2000, 2), np.full(2000, X.indices[X.indptr[2]], dtype=np.int64)
    sampler = NegativeSampler(X, kind, 20, shared=False)
    here, there = (sampler.draw(3, 1, batch, users, items).items for batch in (0, 1))
    one, other = {
        "the next of the row": (here[:, ::2], here[:, 1::2]),
        "that of the next row": (here[::2], here[1::2]),
        "that of the next batch": (here, there),
    }[second]
    p = law(X, kind, 1.0, 2)
    assert fits(np.bincount((one * N_ITEMS + other).ravel(), minlength=N_ITEMS**2), np.outer(p, p).ravel())


def test_uniform_other_never_draws_what_the_user_has_met(X):
    users, items = rows_of(X)
    drawn = NegativeSampler(X, "uniform-other", 300, shared=False).draw(5, 1, 0, users, items).items
    assert not X.toarray()[users[:, None], drawn].any()


def test_rows_share_others_but_for_those_that_their_users_have(X):
    users, items = rows_of(X)
    met, sampler = X.toarray()[users].astype(bool), NegativeSampler(X, "uniform-other", 6, shared=True)
    counts, replaced = np.zeros((N_USERS, N_ITEMS), int), 0
    for epoch in range(400):
        drawn = sampler.draw(5, epoch, 0, users, items)
        own, table = met[:, drawn.items[0]], of_each_row(drawn, len(users))
        # Each item that the user has is replaced, by one that it has not, and no other is.
        assert_array_equal(own, table != drawn.items)
        assert own.sum() == len(drawn.replaced.rows)
        np.add.at(counts, (users[:, None], table), 1)
        replaced += own.sum()
    assert replaced > 1000 and not counts[X.toarray().astype(bool)].any()
    # Rows of one user do not differ in what they share, so counts are as noisy as those of one row of each.
    for user in range(N_USERS):
        assert fits(counts[user] // np.diff(X.indptr)[user], law(X, "uniform-other", 1.0, user))


def test_a_part_of_the_rows_keeps_what_is_replaced_in_them(X):
    users, items = rows_of(X)
    whole = NegativeSampler(X, "uniform-other", 50, shared=True).draw(5, 1, 0, users, items)
    at = np.array([20, 3, 11])
    part = whole.of_rows(at, len(users))
    assert_array_equal(of_each_row(part, len(at)), of_each_row(whole, len(users))[at])
    assert_array_equal(part.logq, whole.logq[at])


@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("uniform-all", False),
        ("uniform-all", True),
        ("uniform-other", False),
        ("uniform-other", True),
        ("popularity", False),
        ("popularity", True),
        ("in-batch", True),
    ],
)
def test_logq_is_the_log_probability_of_the_draw(kind, shared, power, X):
    users, items = rows_of(X)
    found = NegativeSampler(X, kind, 7, shared, power).draw(0, 1, 0, users, items)
    drawn = of_each_row(found, len(users))
    for b, user in enumerate(users):
        p = law(X, kind, power, user)
        assert_allclose(np.broadcast_to(found.logq, drawn.shape)[b], np.log(p[drawn[b]]), rtol=1e-12)
        # Where the positive cannot be drawn, it counts as one of those that can.
        expected = np.log(p.max() if kind == "uniform-other" else p[items[b]])
        assert_allclose(found.logq_pos[b], expected, rtol=1e-12)


def test_in_batch_negatives_are_the_positives_of_the_batch(X):
    users, items = rows_of(X)
    drawn = NegativeSampler(X, "in-batch", 3, shared=True).draw(0, 1, 0, users[:5], items[:5])
    assert_array_equal(drawn.items, items[None, :5])


@pytest.mark.parametrize("kind", ["uniform-all", "uniform-other", "popularity", "extra positives"])
def test_a_draw_is_a_function_of_seed_epoch_and_batch(kind, X):
    users, items = rows_of(X)

    def draw(*key):
        if kind == "extra positives":
            return drawn_positives(*key, X, users, 20)
        return NegativeSampler(X, kind, 20, shared=False).draw(*key, users, items).items

    first = draw(0, 1, 2)
    assert_array_equal(first, draw(0, 1, 2))
    others = [draw(*key) for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3), (0, 2, 1), (2, 1, 0))]
    assert all((first != other).mean() > 0.3 for other in others)
    assert len({other.tobytes() for other in others}) == len(others)


def test_extra_positives_are_the_users_own_each_as_often(X):
    users = np.repeat(np.arange(N_USERS), 50)
    drawn = drawn_positives(0, 1, 0, X, users, 60)
    assert drawn.shape == (300, 60)
    for user in range(N_USERS):
        mine = X.toarray()[user].astype(np.float64)
        assert fits(np.bincount(drawn[users == user].ravel(), minlength=N_ITEMS), mine / mine.sum())


def test_a_user_with_every_item_is_named_and_told_what_to_use():
    met = np.zeros((3, 4), bool)
    met[0, 0], met[1] = True, True
    X = csr_from_pairs(*np.nonzero(met), met.shape)
    with pytest.raises(
        DataError,
        match=r"row 1 \(from 0\) of the training matrix has all 4 items: no negative is left; use sampler=uniform-all",
    ):
        NegativeSampler(X, "uniform-other", 2, shared=False)
    drawn = NegativeSampler(X, "uniform-all", 50, shared=False).draw(0, 1, 0, np.array([1]), np.array([0]))
    assert set(drawn.items.ravel()) == {0, 1, 2, 3}


def test_a_user_with_all_items_but_one_gets_that_one():
    met = np.ones((1, 500), bool)
    met[0, 137] = False
    X = csr_from_pairs(*np.nonzero(met), met.shape)
    found = NegativeSampler(X, "uniform-other", 30, shared=False).draw(0, 1, 0, np.array([0]), np.array([5]))
    assert_array_equal(found.items, np.full((1, 30), 137))
    assert_array_equal(found.logq, [[0.0]])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("loss", "kind"), [("sl", "uniform-other"), ("infonce", "uniform-all")])
def test_sharing_does_not_change_what_is_drawn(X, loss, kind, shared):
    assert trainer_of(X, loss, shared_negatives=shared).sampler.kind == kind
