"""Random shares of every user, and parts that the authors published; what is known and masked when a model is measured."""

from collections import Counter
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.blocks import csr_from_pairs
from rankbench.data.interactions import PARTS
from rankbench.data.protocols.held_out_users import HeldOutUsers
from rankbench.data.protocols.published import Published
from rankbench.data.protocols.random_per_user import RandomPerUser

ALL = ("train", "valid_target", "test_target")
# One user with 100 items keeps every part filled, whatever the others bring.
BUSY = [(99, item) for item in range(100)]
FORTY = BUSY[:40]
some_pairs = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 30)), max_size=80).map(lambda pairs: sorted(pairs | set(BUSY)))
shares = st.sampled_from(["0.05", "0.1", "0.2", "0.25", "0.5", "0.8"])


def rounded(share: str, n: int) -> int:
    """share · n in decimal, rounded half up, but never all of them."""
    return min(int((Decimal(share) * n).quantize(Decimal(1), ROUND_HALF_UP)), max(n - 1, 0))


def labelled(pairs: list[tuple], labels: list[str], part: str) -> list[tuple]:
    return [pair for pair, label in zip(pairs, labels, strict=True) if label == part]


@given(pairs=some_pairs, test=shares, valid=shares, seed=st.integers(0, 2**40), shuffle=st.randoms())
def test_every_user_gives_a_rounded_share_whatever_the_order_of_the_rows(cut, pairs, test, valid, seed, shuffle):
    spec = RandomPerUser(test=float(test), valid=float(valid), seed=seed)
    parts = cut(pairs, spec).parts
    assert sorted(pair for part in parts.values() for pair in part) == pairs
    found = {name: Counter(user for user, _ in parts[name]) for name in ALL}
    for user, n in Counter(user for user, _ in pairs).items():
        n_test = rounded(test, n)
        n_valid = rounded(valid, n - n_test)
        assert [found[name][user] for name in ALL] == [n - n_test - n_valid, n_valid, n_test]
    assert cut(shuffle.sample(pairs, len(pairs)), spec).parts == parts


@given(pairs=some_pairs, seed=st.integers(0, 100))
def test_validation_is_carved_from_train_alone(cut, pairs, seed):
    """Whatever its share, the test part stays what it is, and validation never takes from it."""
    few, many = (cut(pairs, RandomPerUser(test=0.25, valid=share, seed=seed)).parts for share in (0.1, 0.5))
    assert few["test_target"] == many["test_target"]
    assert set(few["valid_target"]) <= set(many["valid_target"])


@given(pairs=some_pairs, labels=st.lists(st.sampled_from(PARTS[:3]), min_size=200, max_size=200), seed=st.integers(0, 9))
def test_published_parts_are_kept(cut, pairs, labels, seed):
    labels = [*PARTS[:3], *labels][: len(pairs)]
    parts = cut(pairs, Published(seed=seed), parts=labels).parts
    assert [parts[name] for name in ALL] == [labelled(pairs, labels, part) for part in PARTS[:3]]


@given(pairs=some_pairs, seed=st.integers(0, 9))
def test_published_data_without_validation_give_it_from_train(cut, pairs, seed):
    labels = ["test" if n % 3 == 0 else "train" for n in range(len(pairs))]
    parts = cut(pairs, Published(valid=0.2, seed=seed), parts=labels).parts
    train = labelled(pairs, labels, "train")
    assert parts["test_target"] == labelled(pairs, labels, "test")
    assert sorted(parts["train"] + parts["valid_target"]) == train
    valid = Counter(user for user, _ in parts["valid_target"])
    assert all(valid[user] == rounded("0.2", n) for user, n in Counter(user for user, _ in train).items())


def test_a_share_for_validation_is_refused_where_it_is_published(cut):
    with pytest.raises(DataError, match=r"split.valid is 0.2, but the data come with a validation part"):
        cut(FORTY, Published(valid=0.2), parts=["train", "valid", "test", "train"] * 10)


def test_published_histories_of_held_out_users_are_read_and_never_targets(cut):
    """Users 1 and 2 are not in train: what is known of them lies in parts of its own."""
    rows = [(user, item) for user in range(3) for item in range(4)]
    labels = ["train"] * 4 + ["valid_history"] * 3 + ["valid"] + ["test_history"] * 2 + ["test"] * 2
    made, _, parts = cut(rows, Published(), parts=labels)
    assert [len(parts[name]) for name in ("train", "valid_history", "valid_target", "test_history", "test_target")] == [
        4,
        3,
        1,
        2,
        2,
    ]
    test = made.holdout("test", "train+valid")
    assert (test.users.tolist(), test.history.indices.tolist(), test.target.indices.tolist()) == ([2], [0, 1], [2, 3])
    assert made.fit_matrix("train+valid").nnz == 8


def test_a_pair_given_twice_within_a_part_counts_once(cut):
    labels = ["train"] * 15 + ["valid"] * 15 + ["test"] * 10 + ["train"]
    assert cut([*FORTY, FORTY[0]], Published(), parts=labels).split.train.sum() == 15


def test_what_is_known_when_is_what_is_masked(cut):
    made, _, parts = cut(FORTY, RandomPerUser(test=0.25, valid=0.2, seed=1))

    def items(matrix) -> list[tuple]:
        return [(99, item) for item in sorted(matrix.indices)]

    train, valid, test = (parts[name] for name in ALL)
    assert (items(made.fit_matrix("train")), items(made.fit_matrix("train+valid"))) == (train, sorted(train + valid))
    validation = made.holdout("valid", "train")
    assert (items(validation.history), items(validation.target)) == (train, valid)
    # Also after a fit on train alone, an item known from validation is no recommendation at test time. But a model that scores
    # from histories does not read it then, as no other model does.
    for fitted_on, known in (("train", train), ("train+valid", sorted(train + valid))):
        final = made.holdout("test", fitted_on)
        assert (items(final.history), items(final.target), items(final.seen)) == (known, test, sorted(train + valid))
    with pytest.raises(ValueError, match="among the interactions that the model was fitted on"):
        made.holdout("valid", "train+valid")


def test_what_is_excluded_follows_its_rows(cut):
    """Of held-out users only some have rows: a user's excluded items come with the user."""
    made = cut([(user, item) for user in range(10) for item in range(8)], HeldOutUsers(valid=3, test=3, seed=2)).split
    excluded = csr_from_pairs(np.arange(10), np.arange(10) % 8, made.train.shape)
    holdout = replace(made, excluded=excluded).holdout("test", "train")
    assert len(holdout.users) == 3
    for row, user in enumerate(holdout.users):
        assert set(holdout.seen[[row]].indices) == set(made.test_history[[user]].indices) | {user % 8}
        assert set(holdout.history[[row]].indices) == set(made.test_history[[user]].indices)


def test_validation_items_are_candidates_of_test_only_if_the_split_says_so(cut):
    hidden, shown = (cut(FORTY, RandomPerUser(test=0.2, valid=0.2, rank_valid=on)).split for on in (False, True))
    assert all((getattr(hidden, name) != getattr(shown, name)).nnz == 0 for name in ALL)
    on_train = [each.holdout("test", "train").seen.nnz for each in (hidden, shown)]
    assert on_train == [hidden.train.nnz + hidden.valid_target.nnz, hidden.train.nnz]
    # A model that was fitted on them would only repeat them.
    assert shown.holdout("test", "train+valid").seen.nnz == on_train[0]
    assert shown.holdout("valid", "train").seen.nnz == hidden.train.nnz
