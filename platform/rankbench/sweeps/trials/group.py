"""The units that one Tuner of Ray Tune runs, and what their trials need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rankbench.cluster.machine import Needs, can_run_together
from rankbench.sweeps.placement import shared_needs
from rankbench.sweeps.search.stage import Search
from rankbench.sweeps.trials.dispatch import Dispatch
from rankbench.sweeps.units import AdaptiveSearch, Unit


@dataclass
class Group:
    """The units of one Tuner: planned ones by position, drawn ones by the id of their trial."""

    units: list[Unit]
    searches: list[AdaptiveSearch]
    search: Search
    dispatch: Dispatch
    in_order: bool = False
    drawn: dict[str, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs = {unit.needs for unit in (*self.units, *(each.draft for each in self.searches))}
        self._shared = shared_needs(needs, self.dispatch.machines)

    def unit_of(self, trial: Any) -> Unit:
        return self.units[trial.config["unit"]] if "unit" in trial.config else self.drawn[trial.trial_id]

    def shared(self, unit: Unit) -> Needs:
        """The needs of the unit's trial, with as much memory as similar trials have, so that they can share workers."""
        return self._shared[unit.needs]

    def needs(self, unit: Unit) -> Needs:
        """What a trial of the unit reserves now: fewer nodes than planned if the machines that are left have no more."""
        shared = self.shared(unit)
        for nodes in range(shared.nodes, 1, -1):
            if can_run_together([fewer := replace(shared, nodes=nodes)], self.dispatch.machines):
                return fewer
        return replace(shared, nodes=1)
