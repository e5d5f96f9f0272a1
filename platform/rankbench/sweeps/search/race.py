"""The search of a setting at any time: many candidates get a little of it, and the best of them ever more.

This is ASHA (Li et al., MLSys 2020) with seconds as the resource, for one worker and without a budget: a candidate reaches
level l when it has had `unit * REDUCTION**l` seconds. What is done next only depends on the candidates:

1. A candidate that is on its way to a level goes on.
2. The first candidate, which has the method's defaults, goes on until it has had as long as the longest other one.
3. Of the candidates at the highest level at which one of them was among the best third, the best goes on to the next level.
4. A new candidate begins, if there are more settings.
5. The best candidate that has not ended goes on.

`unit` is the time until the first value, or a second if that is longer: a candidate without a value cannot be ranked, and below
a second the first iterations are ranked by chance. Fits are not begun anew, they go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import fmean

from rankbench.sweeps.search.candidate import Candidate

REDUCTION = 3
LEAST_UNIT = 1.0  # seconds
LIVE = 9  # fits that are kept


class Race:
    """The candidates in the order in which they began. `start()` begins the next one, or returns None if there are no more. At
    most `live` of those that have not ended are kept, at least three.
    """

    def __init__(self, start: Callable[[], Candidate | None], candidates: Iterable[Candidate] = (), live: int = LIVE):
        self._start, self.candidates, self.live = start, [*candidates], live

    @property
    def clock(self) -> float:
        return sum(each.seconds for each in self.candidates)

    @property
    def unit(self) -> float:
        first = next((each.seconds_to_first for each in self.candidates if math.isfinite(each.value)), 0.0)
        return max(LEAST_UNIT, first)

    @property
    def default(self) -> Candidate | None:
        return self.candidates[0] if self.candidates else None

    @property
    def leader(self) -> Candidate | None:
        """The candidate with the best value, the earlier one of equals; None while there is no value."""
        best = max(self.candidates, key=lambda each: each.value, default=None)
        return best if best is not None and math.isfinite(best.value) else None

    def choose(self) -> Candidate | None:
        """Return the candidate whose iteration is next; None if all settings were tried and all fits have ended."""
        going = [each for each in self.candidates if not each.ended]
        for each in going:
            if len(each.marks) <= each.level:
                return each
        default, others = self.candidates[:1], self.candidates[1:]
        if others and not default[0].ended and _goes_on(default[0], max(each.seconds for each in others)):
            return default[0]
        promoted = self._promotable() or self._new() or max(going, key=lambda each: each.value, default=None)
        if promoted is not None:
            promoted.level = len(promoted.marks)
        return promoted

    def expected(self, candidate: Candidate) -> float:
        """Seconds that the next iteration of a candidate will take, as far as earlier ones tell."""
        first = [each.seconds_to_first for each in self.candidates if each.seconds_to_first]
        return candidate.pace or (fmean(first) if first else 0.0)

    def step(self, candidate: Candidate) -> None:
        """Let a candidate complete an iteration."""
        candidate.step()
        marks, unit = candidate.marks, self.unit
        while (candidate.ended and len(marks) <= candidate.level) or not _goes_on(candidate, unit * REDUCTION ** len(marks)):
            marks.append(candidate.value)

    def _at(self, level: int) -> list[Candidate]:
        """Those that have reached a level, best first."""
        reached = [each for each in self.candidates if len(each.marks) > level]
        return sorted(reached, key=lambda each: -each.marks[level])

    def _promotable(self) -> Candidate | None:
        for level in reversed(range(max((len(each.marks) for each in self.candidates), default=0))):
            reached = self._at(level)
            for each in reached[: len(reached) // REDUCTION]:
                if not each.ended and len(each.marks) == level + 1:
                    return each
        return None

    def _new(self) -> Candidate | None:
        """Begin a candidate. If there are too many, one ends for good: the last of its level, as a share of those there."""
        begun = self._start()
        if begun is None:
            return None
        live = [each for each in self.candidates if not each.ended]
        if len(live) >= self.live:
            kept = self.default, self.leader
            max((each for each in live if each not in kept), key=self._distance).close()
        self.candidates.append(begun)
        return begun

    def _distance(self, candidate: Candidate) -> tuple[float, int]:
        """How far a candidate is from being promoted; of equals, the one at the lower level is further."""
        level = len(candidate.marks) - 1
        reached = self._at(level)
        return reached.index(candidate) / len(reached), -level


def _goes_on(candidate: Candidate, seconds: float) -> bool:
    """Whether a candidate is nearer to having had so many seconds after another iteration."""
    return candidate.seconds + candidate.pace / 2 <= seconds
