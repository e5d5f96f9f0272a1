"""The race of settings, with fits whose time is a number."""

import copy
import itertools
import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from rankbench.sweeps.search.race import LEAST_UNIT, LIVE, REDUCTION, Race


@dataclass(eq=False)
class Runner:
    """A fit of iterations of `pace` seconds, which ends after `length` of them, and approaches the value `goal`."""

    number: int
    goal: float
    step_seconds: float
    length: int
    seconds: float = 0.0
    seconds_to_first: float = 0.0
    iterations: int = 0
    level: int = 0
    marks: list = field(default_factory=list)
    ended: bool = False
    closed: bool = False

    @property
    def value(self):
        return self.goal * (1 - 0.5 ** (self.iterations * self.step_seconds)) if self.iterations else -math.inf

    @property
    def pace(self):
        return self.step_seconds if self.iterations else 0.0

    def step(self):
        assert not self.ended
        self.iterations += 1
        self.seconds += self.step_seconds
        self.seconds_to_first = self.seconds_to_first or self.seconds
        self.ended = self.iterations >= self.length

    def close(self):
        self.ended = self.closed = True


def race(fits, live=LIVE, candidates=()):
    rest = itertools.islice(enumerate(fits), len(candidates), None)

    def start():
        number, fit = next(rest, (0, None))
        return fit and Runner(number, *fit)

    return Race(start, candidates, live)


def steps(of, most=10**6):
    """The numbers of the candidates whose iterations come next."""
    for _ in range(most):
        chosen = of.choose()
        if chosen is None:
            return
        of.step(chosen)
        yield chosen.number


def by_hand(fits, live, most):
    """The rules as the paper and the page of the leaderboard state them, in whole levels."""
    done, order, unit = {}, [], LEAST_UNIT  # number → its fit

    def go_on(each, until):
        while not each.ended and each.seconds + each.pace / 2 <= until and len(order) < most:
            each.step()
            order.append(each.number)

    def to_level(each, level):
        nonlocal unit
        if not each.iterations:
            each.step()
            order.append(each.number)
            unit = max(LEAST_UNIT, done[0].seconds_to_first)
        go_on(each, unit * REDUCTION**level)
        settle(each, level)

    def settle(each, level=-1):
        """A fit that has ended on its way to a level has reached it."""
        while len(each.marks) <= level or each.seconds + each.pace / 2 > unit * REDUCTION ** len(each.marks):
            each.marks.append(each.value)

    while len(order) < most:
        default, others = done.get(0), [each for number, each in done.items() if number]
        longest = max((each.seconds for each in others), default=-1)
        # The values at levels are those of the time when it reached them.
        while default and not default.ended and default.seconds + default.pace / 2 <= longest and len(order) < most:
            default.step()
            order.append(0)
            settle(default)
        if len(order) >= most:
            break
        chosen = None
        for level in range(20, -1, -1):
            there = sorted((each for each in done.values() if len(each.marks) > level), key=lambda each: -each.marks[level])
            third = there[: len(there) // 3]
            chosen = chosen or next((each for each in third if len(each.marks) == level + 1 and not each.ended), None)
        if chosen:
            settle_at = len(chosen.marks)
            while not chosen.ended and chosen.seconds + chosen.pace / 2 <= unit * REDUCTION**settle_at and len(order) < most:
                chosen.step()
                order.append(chosen.number)
            if len(order) < most or chosen.ended:
                settle(chosen, settle_at)
            continue
        if len(done) < len(fits):
            alive = [each for each in done.values() if not each.ended]
            best = max(done.values(), key=lambda each: each.value, default=None)
            if len(alive) >= live:
                ranks = {}
                for each in alive:
                    level = len(each.marks) - 1
                    better = [
                        o for o in done.values() if len(o.marks) > level
                        and (o.marks[level], -o.number) > (each.marks[level], -each.number)
                    ]  # fmt: skip
                    there = sum(len(o.marks) > level for o in done.values())
                    ranks[each.number] = (len(better) / there, -level, -each.number)
                for kept in (0, best.number):
                    ranks.pop(kept, None)
                done[max(ranks, key=ranks.get)].close()
            done[len(done)] = Runner(len(done), *fits[len(done)])
            to_level(done[len(done) - 1], 0)
            continue
        alive = [each for each in done.values() if not each.ended]
        if not alive:
            break
        best = max(alive, key=lambda each: each.value)
        to_level(best, len(best.marks))
    return order


FITS = st.lists(
    st.tuples(st.floats(0.01, 1), st.sampled_from([0.0625, 0.25, 0.5, 1.0, 2.5]), st.sampled_from([1, 3, 20, 10**9])),
    min_size=1, max_size=30, unique_by=lambda fit: fit[0],
)  # fmt: skip


@given(fits=FITS, live=st.integers(3, 9))
def test_the_race_follows_its_rules(fits, live):
    most = 100
    assert list(steps(race(fits, live), most)) == by_hand(fits, live, most)


@given(fits=FITS, live=st.integers(3, 9))
def test_the_defaults_have_as_long_as_any_other_and_few_fits_are_kept(fits, live):
    of = race(fits, live)
    for _ in steps(of, 100):
        default, others = of.candidates[0], of.candidates[1:]
        assert not default.closed and not of.leader.closed
        assert sum(not each.ended for each in of.candidates) <= live
        fresh = [each for each in others if len(each.marks) > each.level or each.ended]
        if of.choose() is not default and not default.ended and len(fresh) == len(others):
            assert default.seconds + default.pace / 2 > max((each.seconds for each in others), default=0)


@given(fits=FITS, stops=st.sets(st.integers(1, 150), max_size=5))
def test_a_race_that_goes_on_later_is_the_one_that_never_stopped(fits, stops):
    of, order = race(fits), []
    for number in range(150):
        if number in stops:
            of = race(fits, candidates=copy.deepcopy(of.candidates))
        order += steps(of, 1)
    assert order == list(steps(race(fits), 150))


def test_the_best_third_goes_on_three_times_as_long():
    goals = [0.5, 0.1, 0.9, 0.2, 0.3, 0.6, 0.4, 0.7, 0.8]
    of = race([(goal, 0.0625, 10**9) for goal in goals])
    list(itertools.takewhile(lambda number: of.clock < 31, steps(of)))
    assert [round(each.seconds) for each in of.candidates] == [9, 1, 9, 1, 1, 3, 1, 3, 3]
    assert of.leader is of.candidates[2]


def test_fits_that_end_make_room_for_more_of_them_until_there_are_none():
    of = race([(0.001 * n, 1.0, 1) for n in range(1, 100)])
    assert list(steps(of)) == [*range(99)] and of.choose() is None
    assert of.leader is of.candidates[-1] and of.clock == 99


def test_what_the_next_iteration_takes_is_known_from_earlier_ones():
    of = race([(0.5, 2.0, 10**9), (0.6, 4.0, 1), (0.7, 1.0, 1)])
    assert of.expected(of.choose()) == 0
    first = list(steps(of, 1)) and of.choose()
    assert (first.number, of.expected(first)) == (1, 2.0)  # another one, as long as the first one's first value
    list(steps(of, 1))
    assert (of.choose().number, of.expected(of.choose())) == (0, 2.0)


def test_nothing_with_a_value_is_no_leader():
    of = race([(math.nan, 1.0, 1)])
    assert list(steps(of)) == [0] and of.leader is None and race([]).choose() is None
