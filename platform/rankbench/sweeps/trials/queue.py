"""Which trial of Ray Tune starts next: a planned unit, the largest first or in their own order, or the next draw of a search.

The order of the planned units is kept, because it is asked for ten times per second and may have thousands of units.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from ray.tune.search import Searcher

from rankbench.cluster.machine import Machine, Needs
from rankbench.sweeps.search.stage import OnDone
from rankbench.sweeps.trials.callbacks import Unsaved
from rankbench.sweeps.trials.dispatch import Request
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.units import Unit


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
            lines[unit.arm if group.search.spec.prunes else position].append(position)
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


class Queue(Unsaved, Searcher):
    """Suggests the planned units, the largest first or in their order, and draws of each adaptive search in turn, as the
    dispatch allows. `begins` is asked of a planned unit when its turn comes; it is left out if the answer is no.
    """

    def __init__(self, group: Group, on_done: OnDone, begins: Callable[[Unit], bool] = lambda unit: True):
        super().__init__()
        self.group, self.on_done, self.begins = group, on_done, begins
        self.lineup = Lineup(group)
        self.next_search = 0
        self.remaining = [each.trials for each in group.searches]

    def suggest(self, trial_id: str) -> Any:
        dispatch = self.group.dispatch
        while (planned := self.lineup.candidates()) or any(self.remaining):
            candidates = [*planned, *self._draws()]
            chosen = dispatch.choose([each.request for each in candidates], time.monotonic())
            if chosen is None:
                return None
            candidate = candidates[chosen]
            config: dict[str, Any] = {candidate.kind: candidate.position, "nodes": candidate.request.needs.nodes}
            if candidate.kind == "unit":
                self.lineup.take(chosen)
                if not self.begins(self.group.units[candidate.position]):
                    continue
            else:
                self.next_search = candidate.position + 1
                self.remaining[candidate.position] -= 1
                drawn = self.group.search.draw(self.group.searches[candidate.position], self.on_done)
                if drawn is None:
                    continue
                self.group.drawn[trial_id], config["values"] = drawn
            dispatch.start(trial_id, candidate.request, time.monotonic())
            return config
        return Searcher.FINISHED

    def _draws(self) -> Iterator[Candidate]:
        """The next draws of searches that wait for no running trial, each in its turn."""
        n = len(self.remaining)
        for position in ((self.next_search + ahead) % n for ahead in range(n)):
            search = self.group.searches[position]
            if self.remaining[position] and not self.group.search.waits(search):
                request = Request(self.group.needs(search.draft), search.draft.cost)
                yield Candidate("search", position, request)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Free the trial's resources. The study reads the record, which has more than Tune's result."""
        self.group.dispatch.end(trial_id)

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()
