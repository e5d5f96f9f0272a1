"""A plan in readable form: one row per dataset and arm, what is shared, and the time, memory and disk space that it takes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankbench.cluster.machine import Machine, Needs, capacity
from rankbench.core.environment import Environment
from rankbench.core.threads import available_cpus
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import MethodConfig
from rankbench.judge.compare import Effort
from rankbench.sweeps.comparisons import columns_of
from rankbench.sweeps.done import Done
from rankbench.sweeps.placement import adapted, shared_needs
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.reuse import Earlier
from rankbench.sweeps.units import Unit, units
from rankbench.sweeps.width import widths

RECORD_BYTES, USER_BYTES = 10_000, 40  # sizes of a record and of the metrics of one user


@dataclass
class PlanRow:
    """An arm on a dataset.

    `settings` is None if they are drawn one after another. Some of the `fits` may be shared with other arms, which
    `shared_with` names; `seconds_in_all` counts these in proportion to the settings. `nodes`, `cpus` (on each node),
    `memory_bytes` and `seconds_a_fit` are those of the largest fit. `state` is "planned", or "not available: ..." if the data
    are not available.
    """

    dataset: str
    model: str
    stage: str
    settings: int | None = 0
    fits: int = 0
    nodes: int = 1
    cpus: int = 0
    workers: int = 1
    memory_bytes: int = 0
    seconds_a_fit: float = 0.0
    seconds_in_all: float = 0.0
    shared_with: dict[str, None] = field(default_factory=dict)
    state: str = "planned"

    def add(self, unit: Unit, settings: int, times: int = 1) -> None:
        self.fits += times
        self.nodes = max(self.nodes, unit.nodes)
        self.cpus = max(self.cpus, unit.cpus)
        self.workers = max(self.workers, unit.workers)
        self.memory_bytes = max(self.memory_bytes, unit.memory_bytes)
        self.seconds_a_fit = max(self.seconds_a_fit, unit.cost)
        self.seconds_in_all += times * unit.cost * settings / len(unit.job.configs)

    def as_dict(self) -> dict[str, Any]:
        about = vars(self) | {"shared_with": [*self.shared_with], "memory_gb": round(self.memory_bytes / 1e9, 2)}
        about |= {name: round(about[name], 1) for name in ("seconds_a_fit", "seconds_in_all")}
        del about["memory_bytes"]
        return about


@dataclass(frozen=True)
class Stage:
    """A stage of a sweep. `concurrent` is the maximum number of concurrent trials and `seconds` the rough duration; both are
    None if the machines are not known.
    """

    name: str
    fits: int
    concurrent: int | None
    seconds: float | None
    seconds_of_trials: float


@dataclass(frozen=True)
class Statistics:
    """The last stage: `comparisons`, one per dataset and metric, of so many `pairs` of models, of which `tested` are tested.
    `seconds` is rough.
    """

    comparisons: int
    pairs: int
    tested: int
    seconds: float


@dataclass(frozen=True)
class DryRun:
    """The rows and stages of a plan. The final stage of a search is estimated for the first setting of each arm, each with a
    fit of its own; `at_most`: chosen settings may share a fit, so that it may have fewer.

    `short` is the number of bytes that the largest trial needs beyond the free memory, `finished` the number of fits that this
    sweep or an earlier one has finished, which are not part of the rest. `wide` says which fits get several nodes, and why.
    """

    rows: tuple[PlanRow, ...]
    stages: tuple[Stage, ...]
    folder: str
    records: int
    bytes_written: int
    shared: tuple[str, ...]
    stand_ins: tuple[str, ...]
    short: int = 0
    by_tiles: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    finished: int = 0
    statistics: Statistics = Statistics(0, 0, 0, 0.0)
    at_most: bool = False


def dry_run(
    plan: Plan, environment: Environment, machines: Sequence[Machine] | None, folder: Path | None = None, fresh: bool = False
) -> DryRun:
    """Describe a plan for one machine or the nodes of a cluster; None if they are not known. The datasets must be available.

    Only what would run is described: not what the interrupted sweep in `folder` has finished, nor, unless `fresh`, what would
    be reused from earlier sweeps.
    """
    sizes = {card.name: Size.of(prepare(card, environment)) for card in plan.cards}
    place = folder or environment.results / "sweeps" / "none"
    done = Done.of(plan, place / "records", None if fresh else Earlier.than(place, environment, plan.spec.search.prunes))
    settings = done.chosen(plan)
    final_units, at_most = _final_units(plan, settings, sizes)
    resources, wide = plan.spec.resources, dict[str, None]()

    def on_machines(members: list[tuple[Unit, int]]) -> list[tuple[Unit, int]]:
        """The members of a stage as the machines can run them; the reasons for several nodes are added to `wide`."""
        if not machines:
            return members
        fitting = [(adapted(unit, machines, resources), times) for unit, times in members]
        sized = widths(fitting, machines, resources, shared_folder=environment.results_store is None)
        wide.update(dict.fromkeys(why for _, why in sized if why))
        return [(unit, times) for (unit, _), (_, times) in zip(sized, members, strict=True)]

    fixed = [(unit, 1) for unit in plan.search if not done.has(unit)]
    left = [(each.draft, each.trials - done.n_draws(each)) for each in plan.adaptive]
    search = on_machines([*fixed, *((draft, trials) for draft, trials in left if trials > 0)])
    # Before the search has chosen, the settings of the final stage are a guess, and so would be what is reused of them.
    known = settings is not None or plan.given is not None
    final = on_machines([(unit, 1) for unit in final_units if not (known and done.has(unit))])
    every = [*search, *final]
    too_large = dict.fromkeys(unit.title for unit, _ in every if unit.tiled and unit.nodes == 1)
    rows = _rows(search, len(fixed)) if search else _rows(final, len(final))
    stage = "search" if search else "final"
    rows += [
        PlanRow(dataset, arm.label, stage, state=problem.state)
        for dataset, problem in plan.not_available.items()
        for arm in plan.spec.arms
    ]
    stages = [
        _stage(name, members, machines, resources.concurrent)
        for name, members in (("search", search), ("final", final))
        if members
    ]
    largest = max((unit.memory_bytes for unit, _ in every), default=0)
    users = sum(n * len(unit.job.configs) * sizes[unit.job.card.name].ranked for unit, n in every)
    records = sum(n * len(unit.job.configs) for unit, n in every)
    return DryRun(
        tuple(rows),
        tuple(stages),
        str(folder or f"{environment.results_store or environment.results}/sweeps/{plan.spec.name}-{plan.key}-<time>"),
        records,
        records * RECORD_BYTES + users * USER_BYTES,
        _shared(plan, final),
        tuple(f"{card.name} is a stand-in: {card.stand_in}" for card in plan.cards if card.stand_in),
        max(0, largest - max(each.memory_bytes for each in machines)) if machines else 0,
        tuple(f"{title}: its matrix does not fit; solved by tiles in a file" for title in too_large),
        finished=plan.n_fits + len(final_units) - sum(n for _, n in every),
        wide=tuple(wide),
        statistics=_statistics(plan, final_units, sizes),
        at_most=at_most,
    )


def _final_units(plan: Plan, settings: dict[str, list[MethodConfig]] | None, sizes: dict[str, Size]) -> tuple[list[Unit], bool]:
    """The units of the final stage, and whether there may be fewer: what the search has still to choose may share an inverse.
    `settings`: those that the search has chosen, by dataset; None before.
    """
    result, at_most = list[Unit](), False
    for card in plan.final_cards:
        members = (settings or _chosen(plan))[card.name]
        open_arms = set() if settings or plan.given is not None else _undecided(plan, card.name)
        decided = [each for each in members if each.arm not in open_arms]
        at_most = at_most or (bool(open_arms) and sum(each.share_key is not None for each in members) > 1)
        for group in (decided, *([each] for each in members if each.arm in open_arms)):
            result += units(card, sizes[card.name], group, plan.spec, plan.metrics, "final", plan.cpus)
    return result, at_most


def _statistics(plan: Plan, final: Iterable[Unit], sizes: dict[str, Size]) -> Statistics:
    arms: dict[str, set[str]] = defaultdict(set)
    for unit in final:
        arms[unit.job.card.name] |= {config.label for config in unit.job.configs}
    every_pair, n_metrics = plan.spec.final.pairs == "all", len(columns_of(plan.spec, plan.cards))
    efforts = [Effort.of(len(names), sizes[dataset].ranked, every_pair, available_cpus()) for dataset, names in arms.items()]
    pairs, tested = (n_metrics * sum(getattr(each, what) for each in efforts) for what in ("pairs", "tested"))
    return Statistics(n_metrics * len(efforts), pairs, tested, n_metrics * sum(each.seconds for each in efforts))


def _chosen(plan: Plan) -> dict[str, list[MethodConfig]]:
    """Settings of the final stage by dataset; before the search has chosen, the first setting of each arm."""
    if plan.given is not None:
        return plan.given
    first: dict[str, dict[str | None, MethodConfig]] = {card.name: {} for card in plan.cards}
    for unit in (*plan.search, *(search.draft for search in plan.adaptive)):
        for config in unit.job.configs:
            first[unit.job.card.name].setdefault(config.arm, config)
    return {dataset: [*settings.values()] for dataset, settings in first.items()}


def _undecided(plan: Plan, dataset: str) -> set[str | None]:
    """The arms that have several settings on a dataset, of which the search chooses one."""
    arms = [each.arm for unit in plan.search if unit.job.card.name == dataset for each in unit.job.configs]
    return {arm for arm in arms if arms.count(arm) > 1} | {search.arm.label for search in plan.adaptive}


def _rows(members: list[tuple[Unit, int]], n_fixed: int) -> list[PlanRow]:
    """The rows of a stage; those after the first `n_fixed` members are drafts of searches that draw their settings."""
    rows: dict[tuple[str, str], PlanRow] = {}
    for position, (unit, times) in enumerate(members):
        by_arm: dict[str, int] = defaultdict(int)
        for config in unit.job.configs:
            by_arm[config.label] += 1
        for arm, settings in by_arm.items():
            row = rows.setdefault((unit.job.card.name, arm), PlanRow(unit.job.card.name, arm, unit.job.stage))
            row.settings = None if position >= n_fixed else (row.settings or 0) + settings
            row.add(unit, settings, times)
            row.shared_with |= dict.fromkeys(other for other in by_arm if other != arm)
    return [*rows.values()]


def _stage(name: str, members: list[tuple[Unit, int]], machines: Sequence[Machine] | None, wanted: int | str) -> Stage:
    """Estimate a stage, in which trials with shared needs run concurrently, and those with other needs beside them."""
    trials = sum(times for _, times in members)
    total = sum(unit.cost * times for unit, times in members)
    if not machines:
        return Stage(name, trials, None, None, total)
    shared = shared_needs({unit.needs for unit, _ in members}, machines)
    by_needs: dict[Needs, list[tuple[float, int]]] = defaultdict(list)
    for unit, times in members:
        by_needs[shared[unit.needs]].append((unit.cost, times))
    max_concurrent, seconds = 1, 0.0
    for needs, each in by_needs.items():
        at_once = max(1, capacity(needs, machines))
        if wanted != "auto":
            at_once = min(at_once, int(wanted))
        n = sum(times for _, times in each)
        max_concurrent = max(max_concurrent, min(at_once, n))
        mean = sum(cost * times for cost, times in each) / n
        # The last round may not use the whole capacity, but takes as long as the others, unless other trials fill it.
        seconds += mean * (math.ceil(n / at_once) if len(by_needs) == 1 else n / at_once)
    return Stage(name, trials, max_concurrent, max(seconds, *(unit.cost for unit, _ in members)), total)


def _shared(plan: Plan, final: list[tuple[Unit, int]]) -> tuple[str, ...]:
    """Sentences on what runs share, besides the notes of the plan, which are about the search."""
    lines = [f"{', '.join(card.name for card in plan.cards)}: prepared once; all trials read one memory-mapped copy"]
    settings = sum(len(unit.job.configs) for unit, _ in final)
    if plan.given is not None and settings > len(final):
        lines.append(f"{settings} settings need {len(final)} fits: the others share a fit")
    return tuple(lines)


def as_json(plan: Plan, preview: DryRun) -> dict[str, Any]:
    """A plan and what it takes as JSON values."""
    content = {
        "experiment": plan.spec.name,
        "settings": plan.n_settings,
        "rows": [row.as_dict() for row in preview.rows],
        "not_available": {name: vars(problem) for name, problem in plan.not_available.items()},
        "statistics": asdict(preview.statistics),
        "stages": [asdict(stage) for stage in preview.stages],
        "writes": {"folder": preview.folder, "records": preview.records, "bytes": preview.bytes_written},
        "shared": list(preview.shared),
        "stand_ins": list(preview.stand_ins),
        "by_tiles": list(preview.by_tiles),
        "several_nodes": list(preview.wide),
        "missing_memory_bytes": preview.short,
        "fits": _fits_of(plan),
        "notes": list(plan.notes),
        "finished": preview.finished,
    }
    if plan.given is not None:
        keys = ("dataset", "model", "method", "params")
        given = [(dataset, s.arm, s.method, s.flat) for dataset, members in plan.given.items() for s in members]
        content["given"] = [dict(zip(keys, row, strict=True)) for row in given]
    return content


def _fits_of(plan: Plan) -> list[dict[str, Any]]:
    """Every fit of the search with its settings, as JSON values."""
    return [
        {
            "fit": position,
            "dataset": unit.job.card.name,
            "settings": [{"model": each.arm, "params": each.flat} for each in unit.job.configs],
            "cpus": unit.cpus,
            "workers": unit.workers,
            "memory_gb": round(unit.memory_bytes / 1e9, 2),
            "seconds": round(unit.cost, 1),
        }
        for position, unit in enumerate(plan.search, start=1)
    ]
