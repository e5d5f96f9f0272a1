"""The planned units that wait, in the order in which they start: the largest first, or in their own order.

The order is kept, because it is asked for ten times per second and may have thousands of units.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from rankbench.cluster.machine import Machine, Needs
from rankbench.sweeps.trials.dispatch import Request
from rankbench.sweeps.trials.group import Group


@dataclass(frozen=True)
class Candidate:
    """A planned unit or the next draw of an adaptive search, by its position."""

    kind: Literal["unit", "search"]
    position: int
    request: Request


class Lineup:
    """The planned units of a group, without those that were taken.

    The units of an arm whose trials are compared with one another start in their order: a trial may wait for earlier ones.
    """

    def __init__(self, group: Group):
        self.group = group
        lines: dict[Any, list[int]] = defaultdict(list)
        for position, unit in enumerate(group.units):
            lines[unit.arm if group.search.prunes else position].append(position)
        self._next = {before: after for line in lines.values() for before, after in pairwise(line)}
        self._machines: tuple[Machine, ...] = ()
        self._needs: dict[Needs, Needs] = {}  # shared needs → what a trial reserves on these machines
        self._order([line[0] for line in lines.values()])

    def candidates(self) -> list[Candidate]:
        """The units that may start, those before others that should start first."""
        if self._machines != self.group.dispatch.machines:
            self._order([each.position for each in self._candidates])
        return self._candidates

    def take(self, n: int) -> None:
        """Remove the candidate at position n of the list, so that the unit that waits for its start becomes one."""
        candidate = self._candidates.pop(n)
        if candidate.position in self._next:
            insort(self._candidates, self._candidate(self._next[candidate.position]), key=self._rank)

    def _order(self, positions: list[int]) -> None:
        self._machines, self._needs = self.group.dispatch.machines, {}
        self._candidates = sorted(map(self._candidate, positions), key=self._rank)

    def _candidate(self, position: int) -> Candidate:
        unit = self.group.units[position]
        shared = self.group.shared(unit)
        if shared not in self._needs:
            self._needs[shared] = self.group.needs(unit)
        return Candidate("unit", position, Request(self._needs[shared], unit.cost))

    def _rank(self, candidate: Candidate) -> tuple[float, ...]:
        if self.group.in_order:
            return (candidate.position,)
        needs, seconds = candidate.request.needs, candidate.request.seconds
        size = needs.all_cpus, needs.cpus, needs.memory_bytes, needs.gpus, needs.nodes, seconds
        return (*(-each for each in size), candidate.position)
