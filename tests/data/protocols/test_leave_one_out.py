"""Leave-one-out against each user's rows put in order by hand."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rankbench.data.protocols.leave_one_out import LeaveOneOut

# Six items a user keep valid and test from being empty; times are few, so that many are equal.
REGULAR = [(99, item, item) for item in range(6)]
rows_in_time = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 9)), st.integers(0, 3), max_size=40).map(
    lambda times: REGULAR + [(user, item, time) for (user, item), time in times.items()]
)


def by_hand(times):
    """Return the users and times of each part, and the number of users whose test and validation items have the same time. The
    last item in time is for test, the one before it for validation; users with one or two rows stay in train.
    """
    parts, tied = {"train": [], "valid_target": [], "test_target": [], "valid_history": [], "test_history": []}, 0
    for user in sorted({user for user, _ in times}):
        own = sorted(time for (other, _), time in times.items() if other == user)
        names = ["train"] * len(own)
        if len(own) >= 3:
            names[-2:] = ["valid_target", "test_target"]
            tied += own[-1] == own[-2]
        for name, time in zip(names, own, strict=True):
            parts[name].append((user, time))
    return {name: sorted(part) for name, part in parts.items()}, tied


def with_times(made, times):
    found = {name: sorted((pair[0], times[pair]) for pair in part) for name, part in made.parts.items()}
    return found, LeaveOneOut().counts(made.data)["tied_test_users"]


@given(rows=rows_in_time, shuffle=st.randoms(use_true_random=False))
def test_the_last_two_in_time_are_held_out(cut, rows, shuffle):
    made, times = cut(shuffle.sample(rows, len(rows)), LeaveOneOut()), {row[:2]: row[2] for row in rows}
    assert with_times(made, times) == by_hand(times)
    assert made.parts == cut(rows, LeaveOneOut()).parts


def test_of_equal_times_a_random_one_is_the_last(cut):
    """The highest id may be the newest or rarest item, and would be easier or harder to find."""
    rows = [(user, item, 0) for user in range(300) for item in range(6)]
    one, other = (cut(rows, LeaveOneOut(seed=seed)).parts["test_target"] for seed in (0, 1))
    assert one != other and all(30 <= Counter(item for _, item in one)[item] <= 70 for item in range(6))


@given(again=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 6)), max_size=30))
def test_what_is_bought_again_is_no_test_item_unless_asked_for(cut, again):
    rows = [*REGULAR, *again]
    times = {row[:2]: [time for user, item, time in rows if (user, item) == row[:2]] for row in rows}
    for repeats, one in (("drop", min), ("keep", max)):
        made = cut(rows, spec := LeaveOneOut(repeats=repeats), {"duplicates": "last"})
        counted = {pair: one(each) for pair, each in times.items()}
        assert with_times(made, counted) == by_hand(counted)
        begin = {pair[0]: one(times[pair]) for pair in made.parts["test_target"]}
        known = [pair for pair, each in times.items() if min(each) < begin.get(pair[0], 99) <= max(each)]
        about = spec.counts(made.data)
        assert sum(n for name, n in about.items() if name.startswith("known_test_pairs")) == len(known)


@given(rows=rows_in_time, seed=st.integers(0, 2**40), shuffle=st.randoms(use_true_random=False))
def test_a_random_one_of_each_user(cut, rows, seed, shuffle):
    rows = [row[:2] for row in rows]
    parts = cut(rows, LeaveOneOut(order="random", seed=seed)).parts
    assert sorted(parts["train"] + parts["valid_target"] + parts["test_target"]) == sorted(rows)
    n = Counter(user for user, _ in rows)
    for part in ("valid_target", "test_target"):
        assert Counter(user for user, _ in parts[part]) == {user: 1 for user in n if n[user] >= 3}
    assert cut(shuffle.sample(rows, len(rows)), LeaveOneOut(order="random", seed=seed)).parts == parts
