"""A plan as a person reads it before it runs: a row a dataset and arm, what is shared, and what all of it takes and writes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rankbench.cluster.machine import Machine
from rankbench.core.environment import Environment
from rankbench.data.prepare import prepare
from rankbench.experiment.job import MethodConfig
from rankbench.schema.experiment import Resources
from rankbench.sweeps.estimate import Size
from rankbench.sweeps.placement import placed
from rankbench.sweeps.plan import AdaptiveSearch, Plan, Unit, units

RECORD, USER = 10_000, 40  # bytes of a record, and of a user's metrics beside it


@dataclass
class Row:
    """An arm on a dataset. `settings`: None where they are drawn one after another. `fits`: of which some may serve other arms,
    too; `shared_with` names these, and `seconds_in_all` counts a part of such a fit, by settings. `memory_bytes` and
    `seconds_a_fit`: of the largest. `state`: "planned", or "not available: ..." where the data cannot be had.
    """

    dataset: str
    model: str
    stage: str
    settings: int | None = 0
    fits: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    seconds_a_fit: float = 0.0
    seconds_in_all: float = 0.0
    shared_with: dict[str, None] = field(default_factory=dict)
    state: str = "planned"

    def add(self, unit: Unit, settings: int, times: int = 1) -> None:
        self.fits += times
        self.cpus = max(self.cpus, unit.cpus)
        self.memory_bytes = max(self.memory_bytes, unit.memory_bytes)
        self.seconds_a_fit = max(self.seconds_a_fit, unit.cost)
        self.seconds_in_all += times * unit.cost * settings / len(unit.job.configs)

    def as_dict(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "model": self.model,
            "stage": self.stage,
            "state": self.state,
            "settings": self.settings,
            "fits": self.fits,
            "shared_with": [*self.shared_with],
            "cpus": self.cpus,
            "memory_gb": round(self.memory_bytes / 1e9, 2),
            "seconds_a_fit": round(self.seconds_a_fit, 1),
            "seconds_in_all": round(self.seconds_in_all, 1),
        }


@dataclass(frozen=True)
class Stage:
    """`concurrent`: trials at once, of those that need least. `seconds`: until the last is done; both None where nobody knows
    the machines. Rough, as all seconds are.
    """

    name: str
    fits: int
    concurrent: int | None
    seconds: float | None
    seconds_of_trials: float


@dataclass(frozen=True)
class DryRun:
    """`final` rows of a search are one possible choice each: the first setting of every arm. `short`: bytes of memory that the
    largest trial needs beyond what is free.
    """

    rows: tuple[Row, ...]
    stages: tuple[Stage, ...]
    folder: str
    records: int
    bytes_written: int
    shared: tuple[str, ...]
    stand_ins: tuple[str, ...]
    short: int = 0
    by_tiles: tuple[str, ...] = ()


def dry_run(plan: Plan, environment: Environment, cpus: int | None, memory_bytes: int | None) -> DryRun:
    """`cpus` and `memory_bytes`: of the machine that will run it, None for a cluster. Prepares the datasets, as a run would."""
    sizes = {card.name: Size.of(prepare(card, environment)) for card in plan.cards}
    last = [
        unit
        for card in plan.final_cards
        for unit in units(card, sizes[card.name], _chosen(plan, card.name), plan.spec, plan.metrics, "final", cpus)
    ]
    place = partial(_placed, plan.spec.resources, cpus, memory_bytes)
    asks = [replace(ask, draft=place(ask.draft)) for ask in plan.asks]
    search = [*_alike(place(unit) for unit in plan.search), *_drawn(asks)]
    final = _alike(place(unit) for unit in last)
    too_large = dict.fromkeys(unit.title for unit, _ in (*search, *final) if unit.tiled)
    rows = [*_rows(search, asks), *(() if search else _rows(final, ()))]
    stage = "search" if search else "final"
    rows += [
        Row(dataset, arm.label, stage, state=why.state) for dataset, why in plan.not_available.items() for arm in plan.spec.arms
    ]
    concurrent = plan.spec.resources.concurrent
    stages = [
        _stage(name, members, cpus, memory_bytes, concurrent)
        for name, members in (("search", search), ("final", final))
        if members
    ]
    largest = max(unit.memory_bytes for unit, _ in (*search, *final))
    users = sum(n * len(unit.job.configs) * sizes[unit.job.card.name].ranked for unit, n in (*search, *final))
    records = sum(n * len(unit.job.configs) for unit, n in (*search, *final))
    return DryRun(
        tuple(rows),
        tuple(stages),
        str(environment.results / "sweeps" / f"{plan.spec.name}-{plan.key}-<time>"),
        records,
        records * RECORD + users * USER,
        _shared(plan, final),
        tuple(f"{card.name} is a stand-in: {card.stand_in}" for card in plan.cards if card.stand_in),
        max(0, largest - memory_bytes) if memory_bytes is not None else 0,
        tuple(f"{title}: its matrix does not fit; solved by tiles in a file" for title in too_large),
    )


def _placed(resources: Resources, cpus: int | None, memory_bytes: int | None, unit: Unit) -> Unit:
    """The unit as the machine takes it, if the machine is known; its GPU was looked for before."""
    if cpus is None or memory_bytes is None:
        return unit
    return placed(unit, [Machine(cpus, memory_bytes, unit.gpus)], resources)


def _chosen(plan: Plan, dataset: str) -> list[MethodConfig]:
    """What the final stage fits on a dataset; of a search, which has still to choose, the first setting of each arm."""
    if plan.given is not None:
        return plan.given[dataset]
    first: dict[str | None, MethodConfig] = {}
    for unit in (*plan.search, *(ask.draft for ask in plan.asks)):
        for each in unit.job.configs if unit.job.card.name == dataset else ():
            first.setdefault(each.arm, each)
    return [*first.values()]


def _alike(members: Iterable[Unit]) -> list[tuple[Unit, int]]:
    return [(unit, 1) for unit in members]


def _drawn(asks: Iterable[AdaptiveSearch]) -> list[tuple[Unit, int]]:
    return [(ask.draft, ask.trials) for ask in asks]


def _rows(members: list[tuple[Unit, int]], asks: Iterable[AdaptiveSearch]) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    drawn = {id(ask.draft) for ask in asks}
    for unit, times in members:
        by_arm: dict[str, int] = defaultdict(int)
        for each in unit.job.configs:
            by_arm[each.arm or each.method] += 1
        for arm, settings in by_arm.items():
            row = rows.setdefault((unit.job.card.name, arm), Row(unit.job.card.name, arm, unit.job.stage))
            row.settings = None if id(unit) in drawn else row.settings + settings
            row.add(unit, settings, times)
            row.shared_with |= dict.fromkeys(other for other in by_arm if other != arm)
    return [*rows.values()]


def _stage(name: str, members: list[tuple[Unit, int]], cpus: int | None, memory_bytes: int | None, wanted: int | str) -> Stage:
    """Trials of equal needs run side by side, those of other needs after them."""
    by_needs: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for unit, times in members:
        by_needs[unit.cpus, unit.memory_bytes].append((unit.cost, times))
    trials = sum(times for _, times in members)
    total = sum(cost * times for each in by_needs.values() for cost, times in each)
    if cpus is None or memory_bytes is None:
        return Stage(name, trials, None, None, total)
    most, seconds = 1, 0.0
    for (share, memory), each in by_needs.items():
        room = max(1, min(cpus // share, memory_bytes // memory))
        if wanted != "auto":
            room = min(room, int(wanted))
        n = sum(times for _, times in each)
        most = max(most, min(room, n))
        # The last round is full only where the number of trials is a multiple of what runs at once.
        seconds += sum(cost * times for cost, times in each) / n * math.ceil(n / room)
    return Stage(name, trials, most, seconds, total)


def _shared(plan: Plan, final: list[tuple[Unit, int]]) -> tuple[str, ...]:
    """What the notes of the plan, which tell of the search, leave out."""
    lines = [f"{', '.join(card.name for card in plan.cards)}: prepared once, read by all trials from one mapped copy"]
    settings = sum(len(unit.job.configs) for unit, _ in final)
    if plan.given is not None and settings > len(final):
        lines.append(f"{settings} settings need {len(final)} fits: the others share a fit")
    return tuple(lines)


def fits_of(plan: Plan) -> list[dict[str, Any]]:
    """Every fit of the search with its settings, as JSON values."""
    return [
        {
            "fit": position,
            "dataset": unit.job.card.name,
            "settings": [{"model": each.arm, "params": each.flat} for each in unit.job.configs],
            "cpus": unit.cpus,
            "memory_gb": round(unit.memory_bytes / 1e9, 2),
            "seconds": round(unit.cost, 1),
        }
        for position, unit in enumerate(plan.search, start=1)
    ]
