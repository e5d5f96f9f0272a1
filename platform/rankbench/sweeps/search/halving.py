"""Successive halving whose decisions do not depend on the timing of trials (after ASHA, Li et al. 2020, and Hyperband).

The first rung is at `grace` epochs, and each further one at three times as many. At a rung, a trial is compared with the trials
of its bracket that have lower numbers and reached the rung. It goes on if it is among the best third of these and itself, or
the best if there are fewer than three. It waits until all trials with lower numbers have reached the rung or have ended. The
pruners of Optuna compare a trial with those that have arrived so far, so that their decisions depend on timing unless trials
run one at a time; in that case both agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rankbench.core.rng import stream
from rankbench.schema.experiment import SearchSpec

REDUCTION = 3  # factor by which the number of trials shrinks from one rung to the next


@dataclass
class _Climb:
    """One trial: number of rungs passed, values at the rungs reached, and evaluations that are not judged yet."""

    bracket: int
    passed: int = 0
    values: list[float] = field(default_factory=list)
    waiting: list[tuple[int, float]] = field(default_factory=list)
    ended: bool = False


class Halving:
    """Decides which trials of one search end early; trials are numbered from 0 in the order in which they start.

    `epochs` is the maximum number of epochs of a trial. Hyperband has several brackets, each of which begins one rung later.
    """

    def __init__(self, name: str, search: SearchSpec, epochs: int):
        self._name, self._search = name, search
        self.brackets = 1
        if search.scheduler == "hyperband":
            while search.grace * REDUCTION**self.brackets <= epochs:
                self.brackets += 1
        self._climbs: list[_Climb] = []

    def bracket(self, number: int) -> int:
        """The bracket of a trial, drawn at random with the shares of Hyperband."""
        shares = [math.ceil(self.brackets * REDUCTION**later / (later + 1)) for later in range(self.brackets - 1, -1, -1)]
        drawn = stream(self._search.seed, "study", self._name, "bracket", number).integers(sum(shares))
        return next(bracket for bracket in range(self.brackets) if drawn < sum(shares[: bracket + 1]))

    def start(self) -> None:
        """Start the next trial."""
        self._climbs.append(_Climb(self.bracket(len(self._climbs))))

    def report(self, number: int, epoch: int, value: float) -> None:
        """Add the `value` on the validation set after `epoch`; higher is better."""
        self._climbs[number].waiting.append((epoch, value))

    def end(self, number: int) -> None:
        self._climbs[number].ended = True

    def should_stop(self, number: int, wait: bool = True) -> bool | None:
        """Whether the trial should end at its latest evaluation; None while that depends on an earlier trial.

        Without `wait`, earlier trials that have not reached the rung are ignored.
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
        """Whether a trial's value at a rung of a bracket is known, or is known not to exist."""
        climb = self._climbs[number]
        if climb.bracket != bracket or len(climb.values) > rung:
            return True
        # A trial that ended in an interrupted sweep comes with evaluations that were not judged in this process.
        judged = not climb.waiting or self.should_stop(number) is not None
        return len(climb.values) > rung or (climb.ended and judged)
