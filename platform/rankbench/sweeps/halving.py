"""Successive halving whose decisions do not depend on which trial arrives first (after ASHA, Li et al. 2020, and Hyperband).

At rungs, `grace` epochs and then three times as many each, a trial goes on if it is among the best third of the earlier trials
of its bracket that came as far, itself included, or the best of fewer than three. The trials' numbers say which is earlier: a
trial waits at a rung until all with lower numbers have reached the rung or have ended. Optuna's pruners compare a trial with
those that happen to be there, so that what they decide depends on timing unless one trial runs at a time; then both agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rankbench.core.rng import stream
from rankbench.schema.experiment import SearchSpec

REDUCTION = 3  # of trials, from one rung to the next


@dataclass
class _Climb:
    """One trial: the rungs that it passed, its values at the rungs that it reached, and evaluations that are not judged yet."""

    bracket: int
    passed: int = 0
    values: list[float] = field(default_factory=list)
    waiting: list[tuple[int, float]] = field(default_factory=list)
    ended: bool = False


class Halving:
    """Decides which trials of one search end early; trials are numbered from 0 in the order in which they start.

    `epochs`: the most that a trial may take. Brackets, of which only Hyperband has more than one, begin at later rungs.
    """

    def __init__(self, name: str, search: SearchSpec, epochs: int):
        self._name, self._search = name, search
        self.brackets = 1
        if search.scheduler == "hyperband":
            while search.grace * REDUCTION**self.brackets <= epochs:
                self.brackets += 1
        self._climbs: list[_Climb] = []

    def bracket(self, number: int) -> int:
        """The bracket of a trial: at random, in the proportions in which Hyperband gives trials to brackets."""
        shares = [math.ceil(self.brackets * REDUCTION**later / (later + 1)) for later in range(self.brackets - 1, -1, -1)]
        drawn = stream(self._search.seed, "study", self._name, "bracket", number).integers(sum(shares))
        return next(bracket for bracket in range(self.brackets) if drawn < sum(shares[: bracket + 1]))

    def start(self) -> None:
        """The next trial starts."""
        self._climbs.append(_Climb(self.bracket(len(self._climbs))))

    def report(self, number: int, epoch: int, value: float) -> None:
        """`value` on the validation set after `epoch`; the higher the better."""
        self._climbs[number].waiting.append((epoch, value))

    def end(self, number: int) -> None:
        self._climbs[number].ended = True

    def should_stop(self, number: int, wait: bool = True) -> bool | None:
        """Whether the trial should end at its latest evaluation; None while that depends on an earlier trial. Without `wait`,
        earlier trials that have not reached the rung are left out.
        """
        climb = self._climbs[number]
        while climb.waiting:
            epoch, value = climb.waiting[0]
            rung = climb.passed
            if epoch < self._search.grace * REDUCTION ** (climb.bracket + rung):
                climb.waiting.pop(0)
                continue
            if len(climb.values) == rung:
                climb.values.append(value)
            if wait and not all(self._known(earlier, climb.bracket, rung) for earlier in range(number)):
                return None
            earlier = [each for each in self._climbs[:number] if each.bracket == climb.bracket]
            rivals = sorted(
                [climb.values[rung], *(each.values[rung] for each in earlier if len(each.values) > rung)], reverse=True
            )
            if climb.values[rung] < rivals[max(len(rivals) // REDUCTION, 1) - 1]:
                return True
            climb.passed += 1
        return False

    def _known(self, number: int, bracket: int, rung: int) -> bool:
        """Whether it is known what a trial's value at a rung of a bracket is, or that it has none."""
        climb = self._climbs[number]
        if climb.bracket != bracket or len(climb.values) > rung:
            return True
        # A trial that an interrupted sweep ended comes with evaluations that have not been judged in this one.
        judged = not climb.waiting or self.should_stop(number) is not None
        return len(climb.values) > rung or (climb.ended and judged)
