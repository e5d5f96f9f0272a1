"""The cut through time against sorted lists and loops."""

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.protocols.temporal import Temporal

REGULAR = [(99, item, item) for item in range(10)]
rows_in_time = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 12)), st.integers(0, 12), max_size=50).map(
    lambda times: REGULAR + [(user, item, time) for (user, item), time in times.items()]
)
shares = st.sampled_from(["0.1", "0.2", "0.29", "0.5", "0.7"])


def latest(rows, share):
    """The latest share · n rows, rounded down, and every other row of the instant where they begin."""
    n = int(Decimal(share) * len(rows))
    if n == 0:
        return []
    begin = sorted(time for _, _, time in rows)[len(rows) - n]
    return [row for row in rows if row[2] >= begin]


def warm(rows, train):
    return [row for row in rows if row[1] in {item for _, item, _ in train}]


def pairs(rows):
    return sorted(row[:2] for row in rows)


def fails(cut, rows, spec, message):
    with pytest.raises(DataError, match=message):
        cut(rows, spec)


@given(rows=rows_in_time, test=shares, valid=shares, drop=st.booleans(), shuffle=st.randoms(use_true_random=False))
def test_test_and_validation_are_the_latest(cut, rows, test, valid, drop, shuffle):
    spec = Temporal(test=float(test), valid=float(valid), valid_by="time", cold_items="drop" if drop else "keep")
    held_out = latest(rows, test)
    before = [row for row in rows if row not in held_out]
    validation = latest(before, valid)
    train = [row for row in before if row not in validation]
    if not before or not train:
        name = "valid" if before else "test"
        fails(cut, rows, spec, f"all interactions are at the time when {name} begins; the times are too coarse")
        return
    if drop:
        held_out, validation = warm(held_out, train), warm(validation, train)
    if not validation or not held_out:
        fails(cut, rows, spec, f"the {'test' if validation else 'valid'} part is empty")
        return
    parts = cut(shuffle.sample(rows, len(rows)), spec).parts
    assert parts == {
        "train": pairs(train),
        "valid_target": pairs(validation),
        "test_target": pairs(held_out),
        "valid_history": [],
        "test_history": [],
    }


@given(rows=rows_in_time, test=shares, valid=shares, seed=st.integers(0, 99), drop=st.booleans())
def test_random_validation_is_a_share_of_each_users_past(cut, rows, test, valid, seed, drop):
    held_out = latest(rows, test)
    before = [row for row in rows if row not in held_out]
    n_before = Counter(user for user, _, _ in before)
    n_valid = {user: min(int((Decimal(valid) * n).quantize(Decimal(1), ROUND_HALF_UP)), n - 1) for user, n in n_before.items()}
    spec = Temporal(test=float(test), valid=float(valid), seed=seed, cold_items="drop" if drop else "keep")
    try:
        parts = cut(rows, spec).parts
    except DataError as error:
        assert not before or not sum(n_valid.values()) or drop, error
        return
    if drop:
        known = {item for _, item in parts["train"]}
        assert parts["test_target"] == [pair for pair in pairs(held_out) if pair[1] in known]
        assert {item for part in parts.values() for _, item in part} == known
        assert set(parts["train"] + parts["valid_target"]) <= set(pairs(before))
    else:
        assert parts["test_target"] == pairs(held_out)
        assert sorted(parts["train"] + parts["valid_target"]) == pairs(before)
        assert Counter(user for user, _ in parts["valid_target"]) == {user: n for user, n in n_valid.items() if n}


@given(
    again=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 12)), max_size=30),
    step=st.sampled_from(["first", "last"]),
    repeats=st.sampled_from(["drop", "keep"]),
    shuffle=st.randoms(use_true_random=False),
)
def test_a_repeated_pair_counts_when_it_was_first_met_or_last(cut, again, step, repeats, shuffle):
    """Whichever of its interactions the step keeps; pairs on both sides of the cut are counted."""
    rows = [*REGULAR, *again]
    times = {row[:2]: [time for user, item, time in rows if (user, item) == row[:2]] for row in rows}
    first, last = ({pair: least(each) for pair, each in times.items()} for least in (min, max))
    spec = Temporal(test=0.3, valid=0.2, valid_by="time", repeats=repeats)
    once = [(*pair, time) for pair, time in (first if repeats == "drop" else last).items()]
    made = cut(shuffle.sample(rows, len(rows)), spec, {"duplicates": step}, {"min_items_per_user": 1})
    assert made.parts == cut(once, spec).parts
    begin = min(time for *_, time in latest(once, "0.3"))
    known = {pair for pair in times if first[pair] < begin <= last[pair]}
    assert sum(spec.counts(made.data).values()) == len(known)
    assert known.isdisjoint(made.parts["test_target"]) if repeats == "drop" else known <= set(made.parts["test_target"])
