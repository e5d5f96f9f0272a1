"""Which trial of Ray Tune starts next: a planned unit, or the next draw of a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from rankbench.sweeps.search.stage import OnDone
from rankbench.sweeps.trials.callbacks import Unsaved
from rankbench.sweeps.trials.dispatch import Request
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.lineup import Candidate, Lineup
from rankbench.sweeps.units import Unit


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
