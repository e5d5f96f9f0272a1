"""What a sweep will run, what its runs share, what is redundant, and what it costs: known before the first task."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankbench.cluster.machine import Needs
from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, require
from rankbench.core.registry import nearest
from rankbench.data.cards import Card
from rankbench.data.cards import card_names as names_of_cards
from rankbench.data.prepare import Dataset, prepare
from rankbench.evaluation.metrics import MetricSet, metric_set, require_within
from rankbench.experiment.job import Job, MethodConfig, configure
from rankbench.schema.datasets import Entry, card_of
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.space import DRAWS, expand, kinds
from rankbench.schema.stored_sweep import NotAvailable
from rankbench.sweeps import estimate
from rankbench.sweeps.estimate import Size


@dataclass(frozen=True)
class Unit:
    """Settings that one trial fits together, with the trial's needs. `cost`: seconds, roughly. `tiled`: its matrix does not
    fit, and lies in a file.
    """

    job: Job
    cpus: int
    memory_bytes: int
    cost: float
    tiled: bool = False
    device: str = "cpu"

    @property
    def gpus(self) -> int:
        return int(self.device.startswith("cuda"))

    @property
    def needs(self) -> Needs:
        return Needs(self.cpus, self.memory_bytes, self.gpus)

    @property
    def title(self) -> str:
        return f"{self.job.card.name}: {', '.join(dict.fromkeys(config.method for config in self.job.configs))}"

    @property
    def arm(self) -> tuple[str, str]:
        """Names of the dataset and of the arm of the first setting."""
        first = self.job.configs[0]
        return self.job.card.name, first.arm or first.method

    @property
    def run_id(self) -> str:
        """The id of the run of the first setting."""
        return self.job.run_id(self.job.configs[0])

    @property
    def can_end_early(self) -> bool:
        """Whether the search may stop it: it has a single setting, which is evaluated on the validation set as it is fitted."""
        return self.job.stage == "search" and len(self.job.configs) == 1 and self.job.configs[0].stopping is not None


@dataclass(frozen=True)
class AdaptiveSearch:
    """`trials` units of an arm on a dataset whose parameters are drawn one after another, by what earlier ones gave.

    `draft`: a unit of one possible draw, which says what all of them need.
    """

    arm: ArmSpec
    spec: ExperimentSpec
    draft: Unit
    trials: int

    @property
    def card(self) -> Card:
        return self.draft.job.card

    def unit(self, values: dict[str, Any]) -> Unit:
        fixed = {name: value for name, value in self.arm.params.items() if not isinstance(value, dict)}
        each = configure(self.arm.method, fixed | values, self.arm.label, self.arm.label)
        return replace(self.draft, job=replace(self.draft.job, configs=(each,)))


@dataclass(frozen=True)
class Plan:
    """A checked experiment: its search units, and sentences on what was left out or is shared. `asks`: searches whose
    parameters are not known yet. `final_cards`: the cards of the runs that read test, one a dataset and split seed. `given`:
    dataset → the settings to measure without a search. `declared`: the cards of all datasets of the experiment; `cards` are
    those whose data can be had, and `not_available` says of each other, by name, why.
    """

    spec: ExperimentSpec
    declared: tuple[Card, ...]
    cards: tuple[Card, ...]
    metrics: MetricSet
    search: tuple[Unit, ...]
    notes: tuple[str, ...]
    final_cards: tuple[Card, ...]
    given: dict[str, list[MethodConfig]] | None = None
    asks: tuple[AdaptiveSearch, ...] = ()
    not_available: dict[str, NotAvailable] = field(default_factory=dict)

    @property
    def n_settings(self) -> int:
        return sum(len(unit.job.configs) for unit in self.search) + sum(ask.trials for ask in self.asks)

    @property
    def n_fits(self) -> int:
        """Of the search."""
        return len(self.search) + sum(ask.trials for ask in self.asks)

    @property
    def key(self) -> str:
        """A hash of everything that decides the results: the same key continues the same sweep, with more datasets, too, when
        these have become available.
        """
        # What stands at its default is left out, so that a key outlives fields that are added later.
        experiment = self.spec.model_dump(mode="json", exclude={"question", "resources", "not_run"}, exclude_defaults=True)
        for entry in experiment["datasets"]:
            if isinstance(entry, dict):
                entry.pop("file", None)  # where a card lies on this machine decides nothing
        content = [
            experiment,
            [card.content_key() for card in self.declared],
            self.given is not None,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def plan(
    spec: ExperimentSpec,
    environment: Environment,
    cpus: int | None,
    where: str,
    use_chosen: bool = False,
    require_all: bool = False,
) -> Plan:
    """Check the experiment whole, prepare its datasets, and lay out the search. `cpus`: of the machine that will run
    it; None for a cluster whose nodes are not known, where `auto` means 4 a large fit. With `use_chosen` there is no
    search: the parameters are the file's `chosen` ones. Datasets whose raw data cannot be had are left out and named.

    Raises ConfigError for any unknown name or value out of range, before a task starts; DownloadError when the data of no
    dataset can be had, or, with `require_all`, those of any.
    """
    names = [arm.label for arm in spec.arms]
    doubled = {name for name in names if names.count(name) > 1}
    require(not doubled, f"{where}: arms: the name {', '.join(doubled)} is given twice; set a `name` for each")
    wanted = spec.resources.cpus
    require(
        cpus is None or wanted == "auto" or wanted <= cpus,
        f"{where}: resources.cpus: {wanted} asked for a trial, this machine has {cpus}",
    )
    require("@" in spec.search.choose.metric, f"{where}: search.choose.metric: write it with a cutoff, as in ndcg@20")
    metrics = metric_set([*spec.metrics, spec.search.choose.metric, *with_both_recalls(spec.report_metrics)], spec.cutoffs)
    notes: list[str] = []
    final_notes: list[str] = []
    declared = [card_of(entry, environment, f"{where}: datasets[{i}]") for i, entry in enumerate(spec.datasets)]
    card_names = [card.name for card in declared]
    doubled = {name for name in card_names if card_names.count(name) > 1}
    require(not doubled, f"{where}: datasets: {', '.join(doubled)} is given twice; its rows could not be told apart")
    # A file may be run on some of its datasets: what it says of the others is then not looked at.
    known = {*names_of_cards(environment), *card_names}
    candidates: list[MethodConfig] = []
    asked: list[tuple[ArmSpec, list[MethodConfig]]] = []
    for position, arm in enumerate(spec.arms):
        place = f"{where}: arms[{position}]"
        _require_known(arm.published, known, f"{place}.published")
        _require_known(arm.chosen, known, f"{place}.chosen")
        checked, said = _settings_of(arm, spec, place)
        if spec.search.by != "random" and any(kind in DRAWS for kind in kinds(arm.params)):
            asked.append((arm, checked))
            notes += _drawn_for_nothing(arm, checked[0])
        else:
            candidates += checked
            notes += said
    for position, row in enumerate(spec.not_run):
        place = f"{where}: not_run[{position}]"
        require(row.name not in names, f"{place}: the name {row.name} is an arm's")
        _require_known(row.published, known, f"{place}.published")
    chosen = {card.name: _chosen_settings(spec, card.name, where) for card in declared} if use_chosen else {}
    datasets, final_cards, not_available = _available(spec, declared, environment, where, final_notes, require_all)
    cards = [dataset.card for dataset in datasets]
    everyone = [*candidates, *(drawn[0] for _, drawn in asked)]
    unseeded = dict.fromkeys(each.arm for each in everyone if not each.spec.seeded)
    if len(spec.final.seeds) > 1 and unseeded:
        final_notes.append(f"{', '.join(unseeded)}: the method uses no seed; run with seed {spec.final.seeds[0]} alone")
    if use_chosen:
        given = {card.name: chosen[card.name] for card in cards}
        return Plan(
            spec,
            tuple(declared),
            tuple(cards),
            metrics,
            (),
            tuple(final_notes),
            tuple(final_cards),
            given,
            not_available=not_available,
        )
    notes += _shared_rankings(candidates)
    sizes = {dataset.name: Size.of(dataset) for dataset in datasets}
    if {"cutoffs", "metrics"} & spec.model_fields_set:
        for name, size in sizes.items():
            require_within(metrics, size.items, name, f"{where}: cutoffs")
    search = [unit for card in cards for unit in units(card, sizes[card.name], candidates, spec, metrics, "search", cpus)]
    saved = len(candidates) * len(cards) - len(search)
    if saved:
        notes.append(f"{len(candidates) * len(cards)} settings need {len(search)} fits: the others share a fit")
    asks = []
    for card, (arm, drawn) in itertools.product(cards, asked):
        drafts = units(card, sizes[card.name], drawn, spec, metrics, "search", cpus)
        draft = max((replace(unit, job=replace(unit.job, configs=unit.job.configs[:1])) for unit in drafts), key=_needs)
        asks.append(AdaptiveSearch(arm, spec, draft, spec.search.trials))
    return Plan(
        spec,
        tuple(declared),
        tuple(cards),
        metrics,
        tuple(search),
        (*notes, *final_notes),
        tuple(final_cards),
        asks=tuple(asks),
        not_available=not_available,
    )


def _available(
    spec: ExperimentSpec, declared: list[Card], environment: Environment, where: str, notes: list[str], require_all: bool
) -> tuple[list[Dataset], list[Card], dict[str, NotAvailable]]:
    """The datasets whose raw data can be had, prepared; the cards of their final runs; and why the others cannot."""
    datasets, final_cards, errors = [], [], {}
    for position, (entry, card) in enumerate(zip(spec.datasets, declared, strict=True)):
        try:
            dataset, said = prepare(card, environment), []
            of_finals = _final_cards(entry, card, spec, environment, f"{where}: datasets[{position}]", said)
        except DownloadError as error:
            if require_all or len(declared) == 1:
                raise
            errors[card.name] = error
            continue
        datasets.append(dataset)
        final_cards += of_finals
        notes += said
    if not datasets:
        briefs = {error.brief for error in errors.values()}
        reasons = "; ".join(map(str, errors.values()))
        raise DownloadError(f"{where}: none of its datasets can be had: {reasons}", ", ".join(sorted(briefs)))
    return datasets, final_cards, {name: NotAvailable(error.brief, str(error)) for name, error in errors.items()}


def units(
    card: Card,
    size: Size,
    candidates: Iterable[MethodConfig],
    spec: ExperimentSpec,
    metrics: MetricSet,
    stage: str,
    cpus: int | None,
) -> list[Unit]:
    """Group settings by what they can share. Search fits on train and measures on valid, with one seed; the final stage
    fits on what `final.fit_on` says and reads test, once for each seed that changes the method.
    """
    searching = stage == "search"
    fit_on, measure_on = ("train", "valid") if searching else (final_fit(card, spec), "test")
    seeds = (spec.search.seed,) if searching else spec.final.seeds
    groups: dict[Any, list[MethodConfig]] = defaultdict(list)
    for seed in seeds:
        for each in candidates:
            if seed == seeds[0] or each.spec.seeded:
                key = each.share_key
                groups[seed, each.identity if key is None else key].append(each)
    result = []
    for (seed, _), members in groups.items():
        # The models of the table are followed through their iterations; the search has too many for that.
        curve = 0 if searching else members[0].flat.get("eval_every", 1)
        job = Job(card, tuple(members), fit_on, measure_on, metrics, spec.dtype, seed, stage, curve=curve)
        dense = members[0].spec.dense
        wanted = spec.resources.cpus
        # Below some thousands of items a second core adds less to one inverse than a second trial does.
        share = ((cpus or 4) if dense and size.items > 6000 else 1) if wanted == "auto" else wanted
        device = spec.resources.device if members[0].spec.on_device else "cpu"
        result.append(Unit(job, share, estimate.memory(job, size), estimate.seconds(job, size, share), device=device))
    return result


def _needs(unit: Unit) -> tuple[int, float]:
    return unit.memory_bytes, unit.cost


def with_both_recalls(metrics: Iterable[str]) -> tuple[str, ...]:
    """`metrics` with recall_capped@k after every recall@k: where a paper leaves open which it means, both are shown."""
    both = [(name, name.replace("recall@", "recall_capped@")) if name.startswith("recall@") else (name,) for name in metrics]
    return tuple(dict.fromkeys(name for names in both for name in names))


def final_fit(card: Card, spec: ExperimentSpec) -> str:
    """What the model that test is read for is fitted on."""
    return card.final_fit if spec.final.fit_on == "auto" else spec.final.fit_on


def _final_cards(
    entry: Entry, card: Card, spec: ExperimentSpec, environment: Environment, where: str, notes: list[str]
) -> list[Card]:
    """The card for each split seed, without splits that are another one again, as those that their authors published."""
    if spec.final.split_seeds is None:
        return [card]
    given = {"name": entry} if isinstance(entry, str) else entry
    kept: dict[int, tuple[Card, list[np.ndarray]]] = {}
    for seed in spec.final.split_seeds:
        other = card_of(given | {"split": given.get("split", {}) | {"seed": seed}}, environment, where)
        split = prepare(other, environment).split
        parts = (split.fit_matrix(final_fit(card, spec)), split.test_target, split.test_history, split.excluded)
        arrays = [array for part in parts if part is not None for array in (part.indptr, part.indices)]
        twin = next((known for known, (_, them) in kept.items() if all(map(np.array_equal, arrays, them))), None)
        if twin is None:
            kept[seed] = other, arrays
        else:
            notes.append(f"{card.name}: split seed {seed} gives the same final runs as {twin} and is left out")
    chosen_on = f"settings are chosen on the split of seed {card.split.seed}"
    notes.append(f"{card.name}: {chosen_on}, then measured on those of {', '.join(map(str, kept))}")
    return [other for other, _ in kept.values()]


def _require_known(datasets: Iterable[str], known: Iterable[str], where: str) -> None:
    for dataset in datasets:
        require(dataset in known, f"{where}: unknown dataset {dataset!r}{nearest(dataset, known)}")


def _chosen_settings(spec: ExperimentSpec, dataset: str, where: str) -> list[MethodConfig]:
    """One setting an arm, from the file; an arm with nothing to search needs no `chosen`."""
    result = []
    for position, arm in enumerate(spec.arms):
        place = f"{where}: arms[{position}]"
        searched = any(isinstance(value, dict) for value in arm.params.values())
        require(dataset in arm.chosen or not searched, f"{place}.chosen: nothing for {dataset}; run the search first")
        values = {name: value for name, value in arm.params.items() if not isinstance(value, dict)}
        result.append(configure(arm.method, values | arm.chosen.get(dataset, {}), f"{place}.chosen", arm.label))
    return result


def _settings_of(arm: ArmSpec, spec: ExperimentSpec, where: str) -> tuple[list[MethodConfig], list[str]]:
    """The arm's settings, without those that differ in parameters that give no ranking which others do not give too, and a
    sentence on what was left out.
    """
    expanded = expand(arm.params, spec.search.trials, spec.search.seed, f"{where}.params")
    result: dict[tuple, MethodConfig] = {}
    for values in expanded:
        each = configure(arm.method, values, f"{where}.params", arm.label)
        idle = each.spec.redundant
        visible = tuple((name, value) for name, value in each.flat.items() if name not in idle)
        result.setdefault(visible, each)
    if len(result) == len(expanded):
        return list(result.values()), []
    why = next(iter(result.values())).spec.reason or "equal settings"
    return list(result.values()), [f"{arm.label}: {len(result)} of {len(expanded)} settings are planned: {why}"]


def _drawn_for_nothing(arm: ArmSpec, first: MethodConfig) -> list[str]:
    """A sentence on parameters of an arm that are drawn one after another and cannot change a ranking."""
    idle = [name for name in first.spec.redundant if isinstance(arm.params.get(name), dict)]
    return [f"{arm.label}: every draw of {', '.join(idle)} is run, for nothing: {first.spec.reason}"] if idle else []


def _shared_rankings(candidates: list[MethodConfig]) -> list[str]:
    """Sentences on settings of different arms that have the same ranking."""
    by_identity: dict[Any, list[MethodConfig]] = defaultdict(list)
    for each in candidates:
        by_identity[each.identity].append(each)
    pairs: dict[tuple[str, ...], int] = defaultdict(int)
    for members in by_identity.values():
        arms = tuple(dict.fromkeys(each.arm or each.method for each in members))
        if len(arms) > 1:
            pairs[arms] += 1
    return [f"{' and '.join(arms)}: {n} settings have the same ranking; run once, shown for each" for arms, n in pairs.items()]
