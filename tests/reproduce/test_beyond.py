"""A search goes on beyond a range where its best value is the last one."""

import pytest

from rankbench.reproduce.beyond import edges, one_step_beyond
from rankbench.schema.experiment import ArmSpec


def arm(**space):
    return ArmSpec(method="ease", params={"lam": space})


def tried(*values):
    return [{"lam": value} for value in values]


@pytest.mark.parametrize(
    ("values", "best", "following"),
    [
        ([1, 10, 100], 100, 1000),  # even by the ratio
        ([0.1, 0.01, 0.001], 0.001, 0.0001),
        ([10, 20, 30], 30, 40),  # even by the difference
        ([0, 5, 10], 10, 20),
        ([0.05, 0.1, 0.15], 0.05, 0.025),  # the next value would be 0
    ],
)
def test_the_next_value_continues_the_range(values, best, following):
    one = arm(choice=values)
    assert edges(one, {"lam": best}, tried(*values)) == ["lam"]
    assert one_step_beyond(one, {"lam": best}, tried(*values)) == [{"lam": pytest.approx(following)}]


def test_a_best_value_inside_is_no_edge():
    assert edges(arm(grid=[1, 10, 100]), {"lam": 10}, tried(1, 10, 100)) == []


def test_the_upper_end_of_randint_is_not_drawn_so_that_the_value_below_it_is_the_edge():
    one = ArmSpec(method="ials", params={"iterations": {"randint": [4, 9]}})
    drawn = [{"iterations": value} for value in range(4, 9)]
    assert edges(one, {"iterations": 8}, drawn) == edges(one, {"iterations": 4}, drawn) == ["iterations"]
    assert one_step_beyond(one, {"iterations": 8}, drawn) == [{"iterations": 9}]


def test_what_the_method_does_not_accept_is_no_step():
    assert edges(arm(grid=[0, 10]), {"lam": 0}, tried(0, 10)) == []


def test_of_an_interval_the_end_itself_is_tried_first():
    # The best draw is not the end of the interval, so the interval is not left.
    assert edges(arm(loguniform=[1, 100]), {"lam": 90.0}, tried(2.0, 90.0)) == []
