"""The search of a setting within a bounded time: many candidates get a little of it, and the best of them more.

This is successive halving (Jamieson and Talwalkar, AISTATS 2016) with seconds as the resource: `WIDTH` candidates begin, one of
`KEEP` goes on for `KEEP` times as long, and one of these again. Fits are not begun anew, they go on. The first candidate has
the method's defaults. Time for `repeats` further fits of the winner, with other seeds, is left over. What the first round does
not use, because fits end early, is used by rounds of new candidates. After the first candidate, nothing begins that would take
longer, by what is known of iterations and first values, than the time that is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

WIDTH, KEEP = 9, 3
LEAST = 0.05  # share of the budget with which a further round is worth while


T = TypeVar("T")
Steps = Generator[None, None, T]  # yields after each iteration


class Racer(Protocol):
    """A fit that goes on for as long as it is given (`candidate.Candidate`). `seconds_to_first`: until its first value."""

    value: float
    seconds: float
    seconds_to_first: float
    seconds_to_best: float
    ended: bool

    def advance(self, seconds: float, most: float) -> Steps[None]:
        """Go on for `seconds`, to the nearest whole iteration, and yield after each one. The very first one is always made, any
        other one only if it ends within `most` seconds, as far as the mean of the earlier ones tells.
        """

    def close(self) -> None: ...


R = TypeVar("R", bound=Racer)


def race(start: Callable[[], R | None], left: Callable[[], float], repeats: int) -> Steps[R | None]:
    """Return the candidate with the best value that is found before the time is over; None if none has a value. Yields after
    each iteration of a candidate; what the caller does then is no part of the time if `left` does not count it.

    `start()` begins the next candidate, or returns None if there are no more. `left()` returns the seconds that are left. All
    candidates but the winner are closed.
    """
    least, first = LEAST * left(), 0.0
    leader: R | None = None
    while leader is None or left() - repeats * leader.seconds_to_best > max(least, first):
        kept = repeats * leader.seconds_to_best if leader else 0.0
        entered = yield from _first_rung(start, left, kept, repeats)
        if not entered:
            break
        first = max(first, *(each.seconds_to_first for each in entered))
        best = yield from _further_rungs(entered, left, kept, repeats)
        leader = best if leader is None else _better([leader, best])
        if not leader.ended:
            # The time of a candidate that still improves is better spent on it than on new ones.
            yield from leader.advance(max(left() - repeats * leader.seconds, 0.0) / (1 + repeats), left())
            break
    return leader if leader and math.isfinite(leader.value) else None


def _first_rung(start: Callable[[], R | None], left: Callable[[], float], kept: float, repeats: int) -> Steps[list[R]]:
    """Begin candidates in a part of the time that leaves all that the further rungs and repeats need."""
    # Each of the three rungs takes about as long as the last candidate alone, the later ones less what came before.
    last = (left() - kept) / (3 - 2 / KEEP + repeats)
    end, entered, first = left() - last, list[R](), 0.0
    while len(entered) < WIDTH and (not entered or (left() > end and left() > first)):
        candidate = start()
        if candidate is None:
            break
        yield from candidate.advance(last / WIDTH, left())
        first = max(first, candidate.seconds_to_first)
        entered.append(candidate)
        _keep_one_model(entered)
    return entered


def _further_rungs(live: list[R], left: Callable[[], float], kept: float, repeats: int) -> Steps[R]:
    """Let the better ones go on, and return the best one. The others are closed."""
    while len(live) > 1:
        going_on = sorted(live, key=lambda each: -each.value)[: max(1, len(live) // KEEP)]
        for each in live:
            if each not in going_on:
                each.close()
        live, n = going_on, len(going_on)
        # What is left is for these, for the last of them, which goes on alone, and for its repeats.
        shares = (n / KEEP + 1 - 1 / KEEP if n > 1 else 1) + repeats
        last = (left() - kept + sum(each.seconds for each in live)) / shares
        length = last / KEEP if n > 1 else last
        for each in live:
            if not each.ended and left() > kept:
                yield from each.advance(max(length - each.seconds, 0.0), left())
    return live[0]


def _keep_one_model(candidates: Sequence[Racer]) -> None:
    """Close what has ended behind the best one, because a closed form's model is as large as the square of the items."""
    best = max(candidates, key=lambda each: each.value)
    for each in candidates:
        if each.ended and each is not best:
            each.close()


def _better(candidates: Sequence[R]) -> R:
    """The best candidate, the earlier one of equals. The others are closed."""
    best = max(candidates, key=lambda each: each.value)
    for each in candidates:
        if each is not best:
            each.close()
    return best
