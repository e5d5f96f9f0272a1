"""Every protocol: what is random is uniform and follows the seed, and what cannot be done is said."""

from collections import Counter

import pytest

from rankbench.core.errors import DataError
from rankbench.data.protocols.held_out_users import HeldOutUsers
from rankbench.data.protocols.leave_one_out import LeaveOneOut
from rankbench.data.protocols.link_prediction import LinkPrediction
from rankbench.data.protocols.published import Published
from rankbench.data.protocols.random_per_user import RandomPerUser
from rankbench.data.protocols.spec import protocols
from rankbench.data.protocols.temporal import Temporal


def test_the_protocols_are_these():
    assert len(protocols()) == 6


@pytest.mark.parametrize(
    "spec",
    [
        RandomPerUser(test=0.2, valid=0.25, seed=3),
        LeaveOneOut(order="random", seed=1),
        LinkPrediction(test=0.2, valid=0.2, seed=5),
    ],
    ids=lambda spec: spec.protocol,
)
def test_every_item_of_a_user_is_equally_likely_to_be_held_out(cut, spec):
    """3,000 users with the same five items, of which one is held out: 600 an item, standard deviation 22."""
    parts = cut([(user, item) for user in range(100, 3100) for item in range(5)], spec).parts
    for part in ("valid_target", "test_target"):
        found = Counter(item for _, item in parts[part])
        assert found.total() == 3000 and all(abs(found[item] - 600) < 5 * 22 for item in range(5))


ITEMS = [(99, item) for item in range(40)]


@pytest.mark.parametrize(
    ("spec", "part", "parts"),
    [
        (RandomPerUser, "test_target", None),
        (LinkPrediction, "test_target", None),
        (Published, "valid_target", ["train"] * 30 + ["test"] * 10),
    ],
)
def test_another_seed_is_another_split(cut, spec, part, parts):
    assert len({tuple(cut(ITEMS, spec(seed=seed), parts=parts).parts[part]) for seed in range(20)}) > 15


def test_order_in_time_knows_no_seed(cut):
    rows = [(99, item, item) for item in range(6)]
    assert cut(rows, LeaveOneOut(seed=1)).parts == cut(rows, LeaveOneOut(seed=2)).parts
    assert len({tuple(cut(rows, LeaveOneOut(order="random", seed=n)).parts["test_target"]) for n in range(40)}) == 6


SQUARE = [(user, item) for user in range(20) for item in range(8)]
TIMED = [(99, item, item) for item in range(10)]
SAME = [(0, item, 5) for item in range(10)]


@pytest.mark.parametrize(
    ("rows", "spec", "parts", "message"),
    [
        (ITEMS, Published(), None, "published, but the data come in one part"),
        # With one item a user, at least one stays in train.
        ([(user, 0) for user in range(5)], RandomPerUser(), None, "the valid part is empty: 5 interactions are too few"),
        (ITEMS, Published(), ["train"] * 20 + ["valid"] * 20, "the test part is empty"),
        (
            *([*ITEMS, ITEMS[0], ITEMS[20]], Published(), ["train"] * 15 + ["valid"] * 15 + ["test"] * 12),
            "2 pairs lie in two of train, valid and test",
        ),
        (SQUARE, HeldOutUsers(valid=15, test=5), None, r"15 \+ 5 users are held out of 20; none is left"),
        (SQUARE, HeldOutUsers(valid=20, test=1000), None, r"20 \+ 1000 users are held out of 20"),
        (SQUARE, HeldOutUsers(test=0.01), None, "the test part is empty"),
        (SQUARE, HeldOutUsers(test="published"), None, "split.test is published, but the data have no test part"),
        (SQUARE, HeldOutUsers(test="published"), ["train"] * 156 + ["test"] * 4, "but 1 users of the test part are also in"),
        (SQUARE, HeldOutUsers(targets_by="time"), None, "held-out-users with targets by time needs a time column"),
        ([pair for pair in SQUARE if pair[1] < 4], HeldOutUsers(), None, "the valid part is empty: 80 interactions"),
        ([(source, 9) for source in range(5)], LinkPrediction(), None, "the valid part is empty: 5 interactions are too few"),
        ([(source, source) for source in range(5)], LinkPrediction(), None, "the train part is empty"),
        (ITEMS, LeaveOneOut(), None, r"leave-one-out by time needs a time column; name it in the card's read\.time"),
        ([*TIMED, (1, 1, None), (1, 2, None)], LeaveOneOut(), None, "2 interactions have no time; the step `timed: true`"),
        ([(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2)], LeaveOneOut(), None, "the valid part is empty: 4 interactions"),
        (ITEMS, Temporal(), None, "the temporal protocol needs a time column"),
        ([*TIMED, (1, 1, None)], Temporal(), None, "protocol: 1 interactions have no time; the step"),
        (SAME, Temporal(), None, "all interactions are at the time when test begins; the times are too coarse"),
        ([*SAME, (0, 10, 6)], Temporal(test=0.1, valid_by="time"), None, "at the time when valid begins"),
        # A share of less than one interaction is none.
        (TIMED, Temporal(test=0.05), None, "the test part is empty: 10 interactions"),
        (TIMED, Temporal(test=0.5, valid=0.1, valid_by="time"), None, "the valid part is empty: 10 interactions"),
    ],
)
def test_what_cannot_be_done_is_said(cut, rows, spec, parts, message):
    with pytest.raises(DataError, match=message):
        cut(rows, spec, parts=parts)
