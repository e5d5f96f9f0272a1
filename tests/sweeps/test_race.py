"""The search within a budget, with fits whose time is a number."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.fitting.drive import result_of
from rankbench.sweeps.search.race import WIDTH, race


@dataclass
class Clock:
    """A time that only fits let pass, and the candidates in their order."""

    budget: float
    now: float = 0.0
    begun: list = field(default_factory=list)

    def left(self):
        return self.budget - self.now


@dataclass(eq=False)
class Runner:
    """A fit of iterations of `step` seconds, which ends after `length` of them, and approaches the value `goal`."""

    clock: Clock
    goal: float
    step: float
    length: int = 10**9
    value: float = -math.inf
    seconds: float = 0.0
    seconds_to_first: float = 0.0
    seconds_to_best: float = 0.0
    ended: bool = False
    closed: bool = False
    iterations: int = 0

    def advance(self, seconds, most):
        assert not self.closed and not self.ended and seconds >= 0 and most == self.clock.left()
        end, limit = self.seconds + seconds, self.seconds + most
        while not self.ended and (
            not self.iterations or (self.seconds + self.step / 2 <= end and self.seconds + self.step <= limit)
        ):
            self.clock.now += self.step
            self.iterations += 1
            self.seconds += self.step
            self.seconds_to_first = self.seconds_to_first or self.step
            self.value = self.goal * (1 - 0.5 ** (self.iterations * self.step))
            self.seconds_to_best = self.seconds
            self.ended = self.iterations >= self.length
            yield

    def close(self):
        self.ended = self.closed = True


def run(budget, repeats, goals, step, length=10**9):
    clock = Clock(budget)

    def start():
        if len(clock.begun) == len(goals):
            return None
        runner = Runner(clock, goals[len(clock.begun)], step, length)
        clock.begun.append(runner)
        return runner

    return result_of(race(start, clock.left, repeats)), clock


def test_the_better_ones_get_more_time_and_the_repeats_their_part():
    goals = [0.5, 0.1, 0.9, 0.2, 0.3, 0.6, 0.4, 0.7, 0.8]
    winner, clock = run(130.0, 2, goals, 0.01)
    assert winner.goal == 0.9 and len(clock.begun) == WIDTH
    times = sorted((runner.seconds for runner in clock.begun), reverse=True)
    assert times[0] == pytest.approx(3 * times[1], rel=0.1) and times[1] == pytest.approx(3 * times[3], rel=0.1)
    assert times[1] == times[2] and times[3] == times[8]
    assert clock.now + 2 * winner.seconds == pytest.approx(130, rel=0.01)
    assert [runner.closed for runner in clock.begun] == [runner is not winner for runner in clock.begun]


def test_a_slow_fit_has_the_time_to_itself():
    winner, clock = run(90.0, 2, [0.5, 0.9], 28.0)
    assert clock.begun == [winner] and clock.now == 28.0  # two repeats of 28 seconds still fit
    winner, clock = run(90.0, 0, [0.5], 40.0)
    assert winner.iterations == 2


@pytest.mark.parametrize("length", [1, 10**9], ids=["in one step", "iterations"])
def test_what_cannot_end_in_time_does_not_begin(length):
    winner, clock = run(30.0, 0, [0.5, 0.9, 0.7, 0.8], 9.5, length)
    assert winner.value > 0.49 and clock.now == 28.5
    winner, clock = run(10.0, 0, [0.5, 0.9], 6.0, length)
    assert clock.begun == [winner] and clock.now == 6.0


def test_fits_that_end_make_room_for_more_of_them():
    winner, clock = run(100.0, 2, [0.001 * n for n in range(1000)], 1.0, length=1)
    assert 90 <= len(clock.begun) <= 97 and winner is clock.begun[-1]
    assert clock.now + 2 * winner.seconds <= 100


def test_a_short_space_is_tried_once():
    winner, clock = run(100.0, 2, [0.2, 0.4, 0.3], 1.0, length=1)
    assert winner.goal == 0.4 and clock.now == 3.0


def test_nothing_with_a_value_is_no_winner():
    assert run(100.0, 2, [math.nan], 1.0, length=1)[0] is None
    assert run(100.0, 2, [], 1.0)[0] is None


@given(
    budget=st.floats(1, 1000),
    repeats=st.integers(0, 4),
    goals=st.lists(st.floats(0.01, 1), min_size=1, max_size=40),
    step=st.floats(0.02, 2),
    length=st.integers(1, 300),
)
def test_the_budget_is_kept_apart_from_the_first_iteration(budget, repeats, goals, step, length):
    winner, clock = run(budget, repeats, goals, step, length)
    assert clock.now <= max(budget, step) + 1e-6
    assert winner is not None and not winner.closed
    assert all(runner.closed for runner in clock.begun if runner is not winner)
    assert winner.value == max(runner.value for runner in clock.begun)
    # A rung ends with the iteration in which its time is over, and each of these may cost as many repeats.
    assert clock.now + repeats * winner.seconds_to_best <= budget + (1 + repeats) * (WIDTH + 5) * step + 1e-6
