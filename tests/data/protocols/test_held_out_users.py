"""Held-out users: whole users leave, items of strangers leave with them, and the fold-in is counted user by user."""

from collections import Counter
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.protocols.held_out_users import HeldOutUsers

REGULAR = [(user, item) for user in range(20) for item in range(8)]
some_rows = st.sets(st.tuples(st.integers(20, 32), st.integers(0, 30)), max_size=80).map(lambda more: REGULAR + sorted(more))
conventions = st.sampled_from(["liang-2018", "every-user"])
shares = st.sampled_from(["0.2", "0.29", "0.5", "0.8"])


def n_targets(convention, share, n):
    if convention == "liang-2018":
        return int((Decimal(share) * n).quantize(Decimal(1), ROUND_FLOOR)) if n >= 5 else 0
    return max(1, min(n - 1, int((Decimal(share) * n).quantize(Decimal(1), ROUND_HALF_UP)))) if n >= 2 else 0


@given(
    rows=some_rows,
    n_valid=st.integers(8, 12),
    n_test=st.integers(8, 12),
    convention=conventions,
    targets=shares,
    vocabulary=st.sampled_from(["train", "all"]),
    seed=st.integers(0, 2**40),
    shuffle=st.randoms(use_true_random=False),
)
def test_parts_are_those_counted_user_by_user(
    cut, pairs, rows, n_valid, n_test, convention, targets, vocabulary, seed, shuffle
):
    spec = HeldOutUsers(
        valid=n_valid, test=n_test, targets=float(targets), convention=convention, item_vocabulary=vocabulary, seed=seed
    )
    present = {user for user, _ in rows}
    if n_valid + n_test >= len(present):
        with pytest.raises(
            DataError, match=f"{n_valid} \\+ {n_test} users are held out of {len(present)}; none is left to train"
        ):
            cut(rows, spec)
        return
    try:
        made, data, parts = cut(rows, spec)
    except DataError as error:
        assert "part is empty" in str(error)  # every held-out user may have too few items
        return
    users = {name: {user for user, _ in part} for name, part in parts.items()}
    valid, test = users["valid_target"] | users["valid_history"], users["test_target"] | users["test_history"]
    train = users["train"]
    assert not (train & valid or train & test or valid & test)
    # A held-out user vanishes when it has met no item of the vocabulary.
    assert len(train) == len(present) - n_valid - n_test and len(valid) <= n_valid and len(test) <= n_test
    known = {item for user, item in rows if user in train or vocabulary == "all"}
    assert parts["train"] == sorted((user, item) for user, item in rows if user in train)
    vanished = present - train - valid - test
    assert not {item for user, item in rows if user in vanished} & known
    for group, name in ((valid, "valid"), (test, "test")):
        shown, hidden = parts[f"{name}_history"], parts[f"{name}_target"]
        assert sorted(shown + hidden) == sorted((user, item) for user, item in rows if user in group and item in known)
        n_all, n_hidden = Counter(user for user, _ in shown + hidden), Counter(user for user, _ in hidden)
        assert all(n_hidden[user] == n_targets(convention, targets, n_all[user]) for user in group)
    assert cut(shuffle.sample(rows, len(rows)), spec).parts == parts

    # A row for every held-out user; history is the fold-in alone.
    of_valid = parts["valid_history"] + parts["valid_target"]
    assert pairs(data, made.fit_matrix("train+valid")) == sorted(parts["train"] + of_valid)
    for on, group in (("valid", valid), ("test", test)):
        holdout = made.holdout(on, "train")
        ids = data.users.to_pylist()
        assert {ids[user] for user in holdout.users} == group
        for row, user in enumerate(holdout.users):
            assert set(holdout.history[[row]].indices) == set(getattr(made, f"{on}_history")[[user]].indices)
            assert set(holdout.target[[row]].indices) == set(getattr(made, f"{on}_target")[[user]].indices)
        assert holdout.seen is holdout.history


def test_users_and_items_are_held_out_alike(cut):
    """Over 300 seeds each of 20 users is a test user 60 times or so; each of 5 items a target of 300 x 8 / 5."""
    rows = [(user, item) for user in range(20) for item in range(5)]
    users, items = Counter(), Counter()
    for seed in range(300):
        parts = cut(rows, HeldOutUsers(valid=4, test=4, seed=seed)).parts
        users.update({user for user, _ in parts["test_history"]})
        items.update(item for part in ("valid", "test") for _, item in parts[f"{part}_target"])
    assert all(abs(users[user] - 60) < 5 * 7 for user in range(20))
    assert all(abs(items[item] - 480) < 5 * 20 for item in range(5))


def test_shares_of_users_and_numbers_of_users(cut):
    def held_out(**spec):
        parts = cut(REGULAR, HeldOutUsers(**spec)).parts
        return [len({user for user, _ in parts[f"{part}_history"]}) for part in ("valid", "test")]

    assert held_out() == [2, 2]
    assert held_out(valid=0.25, test=0.5) == [5, 10]
    assert held_out(valid=1, test=18) == [1, 18]


@given(rows=some_rows, late=st.sets(st.integers(0, 32), min_size=1, max_size=8), targets=shares, seed=st.integers(0, 99))
def test_published_test_users_give_their_latest_items_as_targets(cut, rows, late, targets, seed):
    """Times run against the ids of items, so that equal answers do not come from the order of the rows."""
    timed = [(user, item, 100 - item) for user, item in rows]
    late &= {user for user, _ in rows}
    spec = HeldOutUsers(
        valid=4, test="published", targets=float(targets), targets_by="time", convention="every-user", item_vocabulary="all",
        seed=seed,
    )  # fmt: skip
    labels = ["test" if user in late else "train" for user, *_ in timed]
    if all(sum(user == each for user, _ in rows) < 2 for each in late):
        return  # none of them has a target
    parts = cut(timed, spec, parts=labels).parts
    assert {user for user, _ in parts["test_history"] + parts["test_target"]} == late
    valid = {user for user, _ in parts["valid_history"] + parts["valid_target"]}
    assert len(valid) == 4 and not valid & late
    for name, group in (("test", late), ("valid", valid)):
        for user in group:
            items = sorted(item for each, item in rows if each == user)  # the latest first
            n_hidden = n_targets("every-user", targets, len(items))
            assert sorted(item for each, item in parts[f"{name}_target"] if each == user) == items[:n_hidden]
            assert sorted(item for each, item in parts[f"{name}_history"] if each == user) == items[n_hidden:]
