"""What an interrupted sweep has finished and what earlier ones have, read from records and draws without changing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankbench.experiment.job import MethodConfig
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.search.draws import Draws
from rankbench.sweeps.search.stage import results_of
from rankbench.sweeps.sweep import choose, final_settings
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.tracking.record import RunRecord, read_records


@dataclass(frozen=True)
class Done:
    """The results in the folder `records` and those that are reused from `earlier` sweeps; `drawn` are the units that each
    adaptive search has drawn, by dataset and arm, and None for each draw that needs no fit.
    """

    records: Path
    drawn: Mapping[tuple[str, str], list[Unit | None]]
    earlier: Earlier | None = None
    _read: dict[tuple[str, ...], list[RunRecord]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, plan: Plan, records: Path, earlier: Earlier | None = None) -> Done:
        """Read the folder, which may be missing. Raises DataError as `Draws` and `read_record` do."""
        draws = Draws(records.parent / "draws.jsonl")
        drawn = {each.draft.arm: [each.drawn(v) for v in draws.params["/".join(each.draft.arm)]] for each in plan.adaptive}
        return cls(records, drawn, earlier)

    def results(self, unit: Unit) -> list[RunRecord]:
        """The results of the unit's settings; none if it has to run."""
        ids = tuple(unit.ids)
        if ids not in self._read:
            own = results_of(unit, self.records)
            if len(own) < len(ids):
                own = self.earlier.find(unit) if self.earlier else []
            self._read[ids] = own
        return self._read[ids]

    def has(self, unit: Unit) -> bool:
        """Whether all settings of the unit have a result."""
        return bool(self.results(unit))

    def n_draws(self, search: AdaptiveSearch) -> int:
        """Number of draws of a search that have a result, or need none."""
        return sum(unit is None or self.has(unit) for unit in self.drawn[search.draft.arm])

    def chosen(self, plan: Plan) -> dict[str, list[MethodConfig]] | None:
        """The chosen settings by dataset; None if a fit of the search is missing or nothing was searched."""
        units = [*plan.search, *(unit for drawn in self.drawn.values() for unit in drawn if unit)]
        left = any(self.n_draws(each) < each.trials for each in plan.adaptive)
        if plan.given is not None or left or not all(map(self.has, units)):
            return None
        results = [record for unit in units for record in self.results(unit)]
        if plan.spec.search.extend:  # what was found beyond the ends of the ranges
            results += [record for record in read_records(self.records) if record.stage == "search"]
        best = choose(results, plan.spec)
        return {card.name: final_settings(best, card, plan.spec) for card in plan.cards}
