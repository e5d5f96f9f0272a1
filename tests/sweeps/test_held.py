"""A fit held at its looks: it goes one look at a time, and ends where it is given up."""

import threading

import pytest

from rankbench.sweeps.held import Held


def _steps(trace, n=5):
    def work(on_look):
        curve = []
        for number in range(1, n + 1):
            trace.append(number)
            curve.append({"iteration": number, "valid": number / 10})
            on_look(curve)
        trace.append("end")

    return work


def test_it_goes_one_look_at_a_time():
    trace = []
    held = Held(_steps(trace, 2))
    assert trace == []
    assert held.next() == [{"iteration": 1, "valid": 0.1}] and trace == [1]
    assert held.next()[1:] == [{"iteration": 2, "valid": 0.2}] and trace == [1, 2]
    assert held.next() is None and trace == [1, 2, "end"]


def test_given_up_it_ends_where_it_waits_and_leaves_no_thread():
    trace, before = [], threading.active_count()
    held = Held(_steps(trace))
    held.next()
    held.next()
    held.give_up()
    assert trace == [1, 2] and threading.active_count() == before


def test_given_up_before_the_first_look_it_never_begins():
    trace = []
    Held(_steps(trace)).give_up()
    assert trace == []


def test_given_up_after_its_end_is_no_harm():
    held = Held(_steps([], 1))
    while held.next():
        pass
    held.give_up()


def test_what_the_work_raises_is_raised_at_the_next_look():
    def work(on_look):
        on_look([{"iteration": 1, "valid": 0.0}])
        raise ArithmeticError("no more")

    held = Held(work)
    held.next()
    with pytest.raises(ArithmeticError, match="no more"):
        held.next()
