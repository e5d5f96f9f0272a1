"""Splits: disjoint parts that cover the data, shares rounded per user, one split a seed."""

from collections import Counter
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.blocks import csr_from_pairs
from rankbench.data.interactions import PARTS, Encoder, Interactions
from rankbench.data.protocols.held_out_users import HeldOutUsers
from rankbench.data.protocols.published import Published
from rankbench.data.protocols.random_per_user import RandomPerUser
from rankbench.data.protocols.spec import protocols
from rankbench.data.splits import split

ALL = ("train", "valid_target", "test_target")
Pairs = list[tuple[int, int]]

# One user with 100 items keeps every part filled, whatever the others bring.
BUSY = [(99, item) for item in range(100)]
FORTY = BUSY[:40]
some_pairs = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 30)), max_size=80).map(lambda pairs: sorted(pairs | set(BUSY)))
shares = st.sampled_from(["0.05", "0.1", "0.2", "0.25", "0.5", "0.8"])


def interactions(pairs: Pairs, parts: list[str] | None = None) -> Interactions:
    """Sorted, as `split` asks for; the part of every pair is `all` unless given."""
    encoder = Encoder("test")
    for (user, item), part in zip(pairs, parts or ["all"] * len(pairs), strict=True):
        encoder.add(pa.table({"user": [user], "item": [item]}), PARTS.index(part))
    return encoder.finish().sorted()


def pairs_of(data: Interactions, matrix) -> Pairs:
    users, items = data.users.to_pylist(), data.items.to_pylist()
    return sorted((users[u], items[i]) for u, i in zip(*matrix.nonzero(), strict=True))


def rounded(share: str, n: int) -> int:
    """share · n in decimal, rounded half up, but never all of them."""
    whole = int((Decimal(share) * n).quantize(Decimal(1), ROUND_HALF_UP))
    return min(whole, max(n - 1, 0))


def test_the_protocols_are_these():
    assert len(protocols()) == 6


@given(pairs=some_pairs, test=shares, valid=shares, seed=st.integers(0, 2**40))
def test_random_parts_are_disjoint_and_cover_the_data(pairs, test, valid, seed):
    data = interactions(pairs)
    parts = split(data, RandomPerUser(test=float(test), valid=float(valid), seed=seed))[0]
    found = [pairs_of(data, getattr(parts, name)) for name in ALL]
    assert sorted(pair for part in found for pair in part) == pairs
    assert all(set(getattr(parts, name).data) == {1.0} for name in ALL)


@given(pairs=some_pairs, test=shares, valid=shares, seed=st.integers(0, 100))
def test_every_user_gives_a_rounded_share(pairs, test, valid, seed):
    data = interactions(pairs)
    parts = split(data, RandomPerUser(test=float(test), valid=float(valid), seed=seed))[0]
    total = Counter(user for user, _ in pairs)
    for row, user in enumerate(data.users.to_pylist()):
        n_test = rounded(test, total[user])
        n_valid = rounded(valid, total[user] - n_test)
        n_train = total[user] - n_test - n_valid
        assert n_train >= 1
        assert [getattr(parts, name)[[row]].nnz for name in ALL] == [n_train, n_valid, n_test]


@given(pairs=some_pairs, seed=st.integers(0, 100))
def test_validation_is_carved_from_train_alone(pairs, seed):
    """Whatever its share, the test part stays what it is, and validation never takes from it."""
    data = interactions(pairs)
    few, many = (split(data, RandomPerUser(test=0.25, valid=share, seed=seed))[0] for share in (0.1, 0.5))
    assert pairs_of(data, few.test_target) == pairs_of(data, many.test_target)
    assert set(pairs_of(data, few.valid_target)) <= set(pairs_of(data, many.valid_target))


@given(pairs=some_pairs, seed=st.integers(0, 100), shuffle=st.randoms())
def test_the_same_seed_is_the_same_split_whatever_the_order_of_the_rows(pairs, seed, shuffle):
    spec = RandomPerUser(seed=seed)
    shuffled = shuffle.sample(pairs, len(pairs))
    first, again = interactions(pairs), interactions(shuffled)
    for name in ALL:
        assert pairs_of(first, getattr(split(first, spec)[0], name)) == pairs_of(again, getattr(split(again, spec)[0], name))


def test_another_seed_is_another_split():
    data = interactions(BUSY)
    tests = {tuple(pairs_of(data, split(data, RandomPerUser(seed=seed))[0].test_target)) for seed in range(20)}
    assert len(tests) == 20


def test_another_seed_is_another_validation_part_of_published_data():
    data = interactions(FORTY, ["train"] * 30 + ["test"] * 10)
    seeds = (Published(seed=seed) for seed in range(20))
    assert len({tuple(pairs_of(data, split(data, spec)[0].valid_target)) for spec in seeds}) > 15


def test_every_item_of_a_user_is_equally_likely_to_be_held_out():
    """4,000 users with the same five items and a share of one: 800 a position, standard deviation 25."""
    n_users = 4000
    data = interactions([(user, item) for user in range(n_users) for item in range(5)])
    parts = split(data, RandomPerUser(test=0.2, valid=0.25, seed=3))[0]
    for target in (parts.test_target, parts.valid_target):
        held_out = target.sum(axis=0)
        assert held_out.sum() == n_users
        assert np.abs(held_out - n_users / 5).max() < 5 * 25.3


@given(pairs=some_pairs, labels=st.lists(st.sampled_from(PARTS[:3]), min_size=200, max_size=200), seed=st.integers(0, 9))
def test_published_parts_are_kept(pairs, labels, seed):
    labels = [*PARTS[:3], *labels][: len(pairs)]
    data = interactions(pairs, labels)
    parts = split(data, Published(seed=seed))[0]
    for part, name in zip(PARTS, ALL, strict=False):
        assert pairs_of(data, getattr(parts, name)) == [
            pair for pair, label in zip(pairs, labels, strict=True) if label == part
        ]


@given(pairs=some_pairs, seed=st.integers(0, 9))
def test_published_data_without_validation_give_it_from_train(pairs, seed):
    labels = ["test" if n % 3 == 0 else "train" for n in range(len(pairs))]
    data = interactions(pairs, labels)
    parts = split(data, Published(valid=0.2, seed=seed))[0]
    published = {part: [pair for pair, label in zip(pairs, labels, strict=True) if label == part] for part in ("train", "test")}
    assert pairs_of(data, parts.test_target) == published["test"]
    assert pairs_of(data, parts.train + parts.valid_target) == published["train"]
    valid, train = (Counter(u for u, _ in some) for some in (pairs_of(data, parts.valid_target), published["train"]))
    assert all(valid[user] == rounded("0.2", n) for user, n in train.items())


def test_published_needs_parts():
    with pytest.raises(DataError, match="published, but the data come in one part"):
        split(interactions(FORTY), Published())


def test_an_empty_part_is_named():
    few = [(user, 0) for user in range(5)]  # one item a user: at least one stays in train
    with pytest.raises(DataError, match="the valid part is empty: 5 interactions are too few"):
        split(interactions(few), RandomPerUser())
    with pytest.raises(DataError, match="the test part is empty"):
        split(interactions(FORTY, ["train"] * 20 + ["valid"] * 20), Published())


def test_a_pair_in_two_parts_is_refused():
    repeated = [*FORTY, FORTY[0], FORTY[20]]
    with pytest.raises(DataError, match="2 pairs lie in two of train, valid and test"):
        split(interactions(repeated, ["train"] * 15 + ["valid"] * 15 + ["test"] * 12), Published())


def test_a_pair_given_twice_within_a_part_counts_once():
    data = interactions([*FORTY, FORTY[0]], ["train"] * 15 + ["valid"] * 15 + ["test"] * 10 + ["train"])
    assert split(data, Published())[0].train.sum() == 15


def test_what_is_known_when_is_what_is_masked():
    data = interactions(FORTY)
    parts = split(data, RandomPerUser(test=0.25, valid=0.2, seed=1))[0]
    train, valid, test = (set(pairs_of(data, getattr(parts, name))) for name in ALL)
    assert set(pairs_of(data, parts.fit_matrix("train"))) == train
    assert set(pairs_of(data, parts.fit_matrix("train+valid"))) == train | valid
    validation = parts.holdout("valid", "train")
    assert (set(pairs_of(data, validation.history)), set(pairs_of(data, validation.target))) == (train, valid)
    # Also after a fit on train alone, an item known from validation is no recommendation at test time. But a model that scores
    # from histories does not read it then, as no other model does.
    for fitted_on, known in (("train", train), ("train+valid", train | valid)):
        final = parts.holdout("test", fitted_on)
        assert (set(pairs_of(data, final.history)), set(pairs_of(data, final.target))) == (known, test)
        assert set(pairs_of(data, final.seen)) == train | valid
    with pytest.raises(ValueError, match="among the interactions that the model was fitted on"):
        parts.holdout("valid", "train+valid")


def test_what_is_excluded_follows_its_rows():
    """Of held-out users only some have rows: a user's excluded items come with the user."""
    data = interactions([(user, item) for user in range(10) for item in range(8)])
    parts = split(data, HeldOutUsers(valid=3, test=3, seed=2))[0]
    excluded = csr_from_pairs(np.arange(10), np.arange(10) % 8, parts.train.shape)
    holdout = replace(parts, excluded=excluded).holdout("test", "train")
    assert len(holdout.users) == 3
    for row, user in enumerate(holdout.users):
        assert set(holdout.seen[[row]].indices) == set(parts.test_history[[user]].indices) | {user % 8}
        assert set(holdout.history[[row]].indices) == set(parts.test_history[[user]].indices)


def test_validation_items_are_candidates_of_test_only_if_the_split_says_so():
    data = interactions(FORTY)
    hidden, shown = (
        split(data, RandomPerUser(protocol="random-per-user", test=0.2, valid=0.2, rank_valid=on))[0] for on in (False, True)
    )
    assert all((getattr(hidden, name) != getattr(shown, name)).nnz == 0 for name in ALL)
    on_train = [each.holdout("test", "train").seen.nnz for each in (hidden, shown)]
    assert on_train == [hidden.train.nnz + hidden.valid_target.nnz, hidden.train.nnz]
    # A model that was fitted on them would only repeat them.
    assert shown.holdout("test", "train+valid").seen.nnz == on_train[0]
    assert shown.holdout("valid", "train").seen.nnz == hidden.train.nnz
