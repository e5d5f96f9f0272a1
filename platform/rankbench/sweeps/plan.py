"""The plan of a sweep, made before the first task: its fits, settings that share one, redundant settings, and the cost."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
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
from rankbench.evaluation.metrics import MetricSet, metric_set, require_better_if_larger, require_within
from rankbench.experiment import estimate
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import Job, MethodConfig, configure
from rankbench.fitting.method import Iterative
from rankbench.schema.datasets import Entry, card_of
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.space import DRAWS, expand, kinds
from rankbench.schema.stored_sweep import NotAvailable
from rankbench.sweeps.selection import by_name


@dataclass(frozen=True)
class Unit:
    """Settings that one trial fits together, and the needs of the trial.

    `cost` is a rough number of seconds. `tiled` means that the matrix does not fit into memory and is stored in a file. With
    `nodes` above 1, the blocks of the fit run on that many nodes, with `cpus` processors on each. `workers` processes make the
    gradient steps; each has one of the `cpus`.
    """

    job: Job
    cpus: int
    memory_bytes: int
    cost: float
    tiled: bool = False
    device: str = "cpu"
    gpu_share: float = 1.0
    nodes: int = 1
    workers: int = 1

    @property
    def gpus(self) -> float:
        return self.gpu_share if self.device.startswith("cuda") else 0

    @property
    def needs(self) -> Needs:
        return Needs(self.cpus, self.memory_bytes, self.gpus, self.nodes)

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
    def ids(self) -> list[str]:
        """The ids of the runs of all settings."""
        return [self.job.run_id(config) for config in self.job.configs]

    @property
    def can_end_early(self) -> bool:
        """Whether the search may stop it: it has a single setting, which is evaluated on the validation set as it is fitted."""
        return self.job.stage == "search" and len(self.job.configs) == 1 and self.job.configs[0].stopping is not None


@dataclass(frozen=True)
class AdaptiveSearch:
    """`trials` units of an arm on a dataset, whose parameters are drawn one after another by the results of earlier ones.

    `draft` is a unit of one possible draw, with needs that suffice for all of them.
    """

    arm: ArmSpec
    draft: Unit
    trials: int

    def unit(self, values: dict[str, Any]) -> Unit:
        """The unit of a draw, with `values` for the searched parameters."""
        fixed = {name: value for name, value in self.arm.params.items() if not isinstance(value, dict)}
        config = configure(self.arm.method, fixed | values, self.arm.label, self.arm.label)
        return replace(self.draft, job=replace(self.draft.job, configs=(config,)))


@dataclass(frozen=True)
class Plan:
    """A checked experiment.

    `declared` are the cards of all its datasets, `cards` those whose data are available, and `not_available` maps the names of
    the others to the reasons. `search` are the units with known parameters, `adaptive` the searches that draw theirs later.
    `given` maps a dataset to the settings that are measured without a search. `final_cards` are the cards of the final runs,
    one per dataset and split seed. `notes` are sentences on settings that are left out or share a fit.
    """

    spec: ExperimentSpec
    declared: tuple[Card, ...]
    cards: tuple[Card, ...]
    metrics: MetricSet
    search: tuple[Unit, ...]
    notes: tuple[str, ...]
    final_cards: tuple[Card, ...]
    given: dict[str, list[MethodConfig]] | None = None
    adaptive: tuple[AdaptiveSearch, ...] = ()
    not_available: dict[str, NotAvailable] = field(default_factory=dict)

    @property
    def n_settings(self) -> int:
        return sum(len(unit.job.configs) for unit in self.search) + sum(search.trials for search in self.adaptive)

    @property
    def n_fits(self) -> int:
        """Number of fits of the search."""
        return len(self.search) + sum(search.trials for search in self.adaptive)

    @property
    def key(self) -> str:
        """A hash of everything that determines the results.

        A sweep is resumed by its key, which does not depend on the datasets that are available.
        """
        # Values that are defaults are left out, so that a key does not change when a field is added.
        experiment = self.spec.model_dump(mode="json", exclude={"question", "resources", "not_run"}, exclude_defaults=True)
        for entry in experiment["datasets"]:
            if isinstance(entry, dict):
                entry.pop("file", None)  # the path of a card on this machine does not matter
        content = [experiment, [card.content_key() for card in self.declared], self.given is not None]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def plan(
    spec: ExperimentSpec,
    environment: Environment,
    cpus: int | None,
    source: str,
    use_chosen: bool = False,
    require_all: bool = False,
) -> Plan:
    """Check the whole experiment, prepare its datasets, and plan the search.

    `cpus` is the number of processors of the machine that will run it; None for a cluster, where `auto` is 4 for a large fit.
    Patterns of datasets and methods are replaced by what they select. `source` names the file in errors. With `use_chosen`
    there is no search: the parameters are the file's `chosen` ones. Datasets whose raw data are not available are left out and
    named.

    Raises ConfigError for an unknown name or a value out of range, before a task starts; DownloadError if no dataset is
    available or, with `require_all`, if one is not.
    """
    spec = by_name(spec, environment, source)
    names = [arm.label for arm in spec.arms]
    doubled = {name for name in names if names.count(name) > 1}
    require(not doubled, f"{source}: arms: the name {', '.join(doubled)} is given twice; set a `name` for each")
    wanted = spec.resources.cpus
    require(
        cpus is None or wanted == "auto" or wanted <= cpus,
        f"{source}: resources.cpus: a trial needs {wanted}, this machine has {cpus}",
    )
    require(
        cpus is None or spec.resources.workers <= cpus,
        f"{source}: resources.workers: a trial of {spec.resources.workers} workers needs as many processors, "
        f"this machine has {cpus}",
    )
    require("@" in spec.search.choose.metric, f"{source}: search.choose.metric: write it with a cutoff, as in ndcg@20")
    require_better_if_larger(spec.search.choose.metric, f"{source}: search.choose.metric")
    metrics = metric_set([*spec.metrics, spec.search.choose.metric, *with_both_recalls(spec.report_metrics)], spec.cutoffs)
    notes: list[str] = []
    final_notes: list[str] = []
    declared = [card_of(entry, environment, f"{source}: datasets[{i}]") for i, entry in enumerate(spec.datasets)]
    card_names = [card.name for card in declared]
    doubled = {name for name in card_names if card_names.count(name) > 1}
    require(not doubled, f"{source}: datasets: {', '.join(doubled)} is given twice; its rows could not be distinguished")
    # A file may be run on some of its datasets; its entries for the others are ignored then.
    known = {*names_of_cards(environment), *card_names}
    candidates: list[MethodConfig] = []
    drawing_arms: list[tuple[ArmSpec, list[MethodConfig]]] = []
    for position, arm in enumerate(spec.arms):
        key = f"{source}: arms[{position}]"
        for name in ("published", "chosen", "printed", "as_published"):
            _require_known(getattr(arm, name), known, f"{key}.{name}")
        settings, setting_notes = _settings_of(arm, spec, key)
        if spec.search.by != "random" and any(kind in DRAWS for kind in kinds(arm.params)):
            drawing_arms.append((arm, settings))
            notes += _redundant_draws(arm, settings[0])
        else:
            candidates += settings
            notes += setting_notes
    for position, row in enumerate(spec.not_run):
        key = f"{source}: not_run[{position}]"
        require(row.name not in names, f"{key}: {row.name} is already the name of an arm")
        _require_known(row.published, known, f"{key}.published")
    chosen = {card.name: _chosen_settings(spec, card.name, source) for card in declared} if use_chosen else {}
    given = [each for settings in chosen.values() for each in settings]
    for config in given:
        config.require_end(spec.final.fit_on, f"{source}: final.fit_on: train+valid")
    searched = [*candidates, *(each for _, settings in drawing_arms for each in settings)]
    measured, part_of = (given, part_of_final) if use_chosen else (searched, part_of_refit)

    def parts(card: Card) -> set[str]:
        return {part_of(config, card, spec) for config in measured}

    datasets, final_cards, not_available = _available(spec, declared, environment, source, final_notes, require_all, parts)
    cards = [dataset.card for dataset in datasets]
    examples = [*candidates, *(settings[0] for _, settings in drawing_arms)]
    for config in (*examples, *given):
        if config.spec.by_workers:
            config.require_workers(spec.resources.workers, f"{source}: resources.workers: {spec.resources.workers}")
    unseeded = dict.fromkeys(config.arm or config.method for config in examples if not config.spec.seeded)
    if len(spec.final.seeds) > 1 and unseeded:
        final_notes.append(f"{', '.join(unseeded)}: the method uses no seed; run with seed {spec.final.seeds[0]} alone")
    final = Plan(
        spec, tuple(declared), tuple(cards), metrics, (), tuple(final_notes), tuple(final_cards), not_available=not_available
    )
    if use_chosen:
        lacking = [f"{name}: {arm.label}: no chosen setting, so it is left out" for name in (card.name for card in cards)
                   for arm in spec.arms if arm.label not in {each.arm for each in chosen[name]}]  # fmt: skip
        final = replace(final, notes=(*final.notes, *lacking))
        return replace(
            final, given={card.name: [each for each in chosen[card.name] if can_score(each, card)] for card in cards}
        )
    notes += _shared_rankings(candidates)
    notes += _grace_beyond_the_end(examples, spec)
    able = {card.name: [config for config in candidates if can_score(config, card)] for card in cards}
    left_out = _left_out(examples, cards)
    every_one = len(left_out) == len(cards) and all(len(arms) == len(examples) for arms in left_out.values())
    require(not every_one, f"{source}: its methods score only users they were fitted on, and its datasets hold users out")
    by_arms: dict[str, list[str]] = defaultdict(list)
    for name, arms in left_out.items():
        by_arms[_some(arms)].append(name)
    why = "only methods with fold-in score held-out users"
    notes += [f"{_some(names)}: without {arms}: {why}" for arms, names in by_arms.items()]
    sizes = {dataset.name: Size.of(dataset) for dataset in datasets}
    if {"cutoffs", "metrics"} & spec.model_fields_set:
        for name, size in sizes.items():
            require_within(metrics, size.items, name, f"{source}: cutoffs")
    search = [unit for card in cards for unit in units(card, sizes[card.name], able[card.name], spec, metrics, "search", cpus)]
    n_settings = sum(map(len, able.values()))
    if n_settings > len(search):
        notes.append(f"{n_settings} settings need {len(search)} fits: the others share a fit")
    adaptive = []
    for card, (arm, settings) in itertools.product(cards, drawing_arms):
        if not can_score(settings[0], card):
            continue
        drafts = units(card, sizes[card.name], settings, spec, metrics, "search", cpus)
        draft = max((replace(unit, job=replace(unit.job, configs=unit.job.configs[:1])) for unit in drafts), key=_needs)
        adaptive.append(AdaptiveSearch(arm, draft, spec.search.trials))
    return replace(final, search=tuple(search), notes=(*notes, *final_notes), adaptive=tuple(adaptive))


def _available(
    spec: ExperimentSpec,
    declared: list[Card],
    environment: Environment,
    source: str,
    notes: list[str],
    require_all: bool,
    parts: Callable[[Card], set[str]],
) -> tuple[list[Dataset], list[Card], dict[str, NotAvailable]]:
    """Prepared datasets whose raw data are available, the cards of their final runs, and why the others are not available.
    `parts(card)`: the parts that final runs are fitted on.
    """
    datasets, final_cards, errors = [], [], {}
    for position, (entry, card) in enumerate(zip(spec.datasets, declared, strict=True)):
        try:
            dataset = prepare(card, environment)
            card_notes: list[str] = []
            split_cards = _final_cards(entry, card, spec, environment, f"{source}: datasets[{position}]", card_notes, parts)
        except DownloadError as error:
            if require_all or len(declared) == 1:
                raise
            errors[card.name] = error
            continue
        datasets.append(dataset)
        final_cards += split_cards
        notes += card_notes
    if not datasets:
        briefs = {error.brief for error in errors.values()}
        reasons = "; ".join(map(str, errors.values()))
        raise DownloadError(f"{source}: none of its datasets is available: {reasons}", ", ".join(sorted(briefs)))
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
    """Group settings that share a fit into units.

    The search fits on train and measures on valid, with one seed. The final stage fits on the part of `part_of_final` and
    measures on test, once for each seed if the method uses it.
    """
    searching = stage == "search"
    measure_on = "valid" if searching else "test"
    seeds = (spec.search.seed,) if searching else spec.final.seeds
    groups: dict[tuple[int, str, Any], list[MethodConfig]] = defaultdict(list)
    for seed in seeds:
        for config in candidates:
            if seed == seeds[0] or config.spec.seeded:
                key, fit_on = config.share_key, "train" if searching else part_of_final(config, card, spec)
                groups[seed, fit_on, config.identity if key is None else key].append(config)
    result = []
    for (seed, fit_on, _), members in groups.items():
        # Only final runs have a curve over all iterations; the search has too many runs for that.
        curve = 0 if searching else members[0].flat.get("eval_every", 1) or 1
        job = Job(card, tuple(members), fit_on, measure_on, metrics, spec.dtype, seed, stage, curve=curve)
        dense = members[0].spec.dense
        wanted = spec.resources.cpus
        # Up to a few thousand items, a core is better used by a second trial than by a second thread of one inverse.
        share = ((cpus or 4) if dense and size.items > 6000 else 1) if wanted == "auto" else wanted
        device = spec.resources.device if members[0].spec.on_device else "cpu"
        workers = spec.resources.workers if members[0].spec.by_workers else 1
        share = workers if workers > 1 else share
        needs = estimate.memory(job, size, workers), estimate.seconds(job, size, share, workers)
        result.append(Unit(job, share, *needs, device=device, gpu_share=spec.resources.gpus, workers=workers))
    return result


def can_score(config: MethodConfig, card: Card) -> bool:
    """Whether a method can score the users that the card's split measures: held-out users need a method with fold-in."""
    return config.spec.scores_new_users(config.params) or card.final_fit != "train"


def _left_out(examples: Iterable[MethodConfig], cards: Iterable[Card]) -> dict[str, list[str]]:
    """Dataset → the arms that cannot score its users, for the datasets that have any."""
    arms = {card.name: [each.arm or each.method for each in examples if not can_score(each, card)] for card in cards}
    return {name: list(dict.fromkeys(each)) for name, each in arms.items() if each}


def _some(names: list[str], shown: int = 4) -> str:
    """The names in a sentence; of many, the first ones and the number of the others."""
    return ", ".join(names) if len(names) <= shown + 1 else f"{', '.join(names[:shown])} and {len(names) - shown} others"


def _grace_beyond_the_end(examples: Iterable[MethodConfig], spec: ExperimentSpec) -> list[str]:
    """A sentence on arms whose trials end before the search may stop them."""
    if spec.search.scheduler == "none":
        return []
    grace, arms = spec.search.grace, dict[str, int]()
    for config in examples:
        if config.stopping and isinstance(config.spec, Iterative) and (limit := config.spec.limit(config.params)) <= grace:
            arms[config.arm or config.method] = limit
    names = ", ".join(f"{arm} ({limit})" for arm, limit in arms.items())
    problem = f"warning: search.grace: {grace} is no smaller than the number of iterations of {names}"
    return [f"{problem}; {spec.search.scheduler} stops none of their trials"] if arms else []


def _needs(unit: Unit) -> tuple[int, float]:
    return unit.memory_bytes, unit.cost


def with_both_recalls(metrics: Iterable[str]) -> tuple[str, ...]:
    """`metrics` with recall_capped@k after every recall@k, for papers that leave open which one they mean."""
    both = [(name, name.replace("recall@", "recall_capped@")) if name.startswith("recall@") else (name,) for name in metrics]
    return tuple(dict.fromkeys(name for names in both for name in names))


def part_of_final(config: MethodConfig, card: Card, spec: ExperimentSpec) -> str:
    """The part that the final run of a setting is fitted on."""
    return config.part_to_fit(card) if spec.final.fit_on == "auto" else spec.final.fit_on


def part_of_refit(config: MethodConfig, card: Card, spec: ExperimentSpec) -> str:
    """The part that a setting is fitted on after the search has found it. Valid can be part of it if it does not have to end
    the fit, because the search has found its length.
    """
    has_length = not (isinstance(config.spec, Iterative) and config.stopping) or config.spec.nested(config.params)
    return card.final_fit if spec.final.fit_on == "auto" and has_length else part_of_final(config, card, spec)


def _final_cards(
    entry: Entry,
    card: Card,
    spec: ExperimentSpec,
    environment: Environment,
    source: str,
    notes: list[str],
    parts: Callable[[Card], set[str]],
) -> list[Card]:
    """The card for each split seed, without splits that equal an earlier one in what final runs read, as published ones do."""
    if spec.final.split_seeds is None:
        return [card]
    given: dict[str, Any] = {"name": entry} if isinstance(entry, str) else entry
    kept: dict[int, tuple[Card, list[np.ndarray]]] = {}
    for seed in spec.final.split_seeds:
        other = card_of(given | {"split": given.get("split", {}) | {"seed": seed}}, environment, source)
        split = prepare(other, environment).split
        # A fit on train may end by valid, which is what train + valid has besides train.
        fitted = (split.fit_matrix(part) for part in sorted({*parts(card), "train+valid"}))
        read = (*fitted, split.test_target, split.test_history, split.excluded)
        arrays = [array for part in read if part is not None for array in (part.indptr, part.indices)]
        twin = next((known for known, (_, others) in kept.items() if all(map(np.array_equal, arrays, others))), None)
        if twin is None:
            kept[seed] = other, arrays
        else:
            notes.append(f"{card.name}: split seed {seed} gives the same final runs as {twin} and is left out")
    chosen_on = f"settings are chosen on the split of seed {card.split.seed}"
    notes.append(f"{card.name}: {chosen_on}, then measured on those of {', '.join(map(str, kept))}")
    return [other for other, _ in kept.values()]


def _require_known(datasets: Iterable[str], known: Iterable[str], source: str) -> None:
    for dataset in datasets:
        require(dataset in known, f"{source}: unknown dataset {dataset!r}{nearest(dataset, known)}")


def _chosen_settings(spec: ExperimentSpec, dataset: str, source: str) -> list[MethodConfig]:
    """One setting per arm, from the file. An arm with nothing to search needs no `chosen`; one that was not searched on this
    dataset is left out, unless that leaves none.
    """
    result = []
    unsearched = [
        arm for arm in spec.arms if dataset not in arm.chosen and any(isinstance(v, dict) for v in arm.params.values())
    ]
    for position, arm in enumerate(spec.arms):
        key = f"{source}: arms[{position}].chosen"
        require(len(unsearched) < len(spec.arms), f"{key}: nothing for {dataset}; run the search first")
        if arm in unsearched:
            continue
        values = {name: value for name, value in arm.params.items() if not isinstance(value, dict)}
        result.append(configure(arm.method, values | arm.chosen.get(dataset, {}), key, arm.label))
    return result


def _settings_of(arm: ArmSpec, spec: ExperimentSpec, source: str) -> tuple[list[MethodConfig], list[str]]:
    """The arm's settings, and a sentence on those that are left out: they differ only in parameters that change no ranking."""
    expanded = expand(arm.params, spec.search.trials, spec.search.seed, f"{source}.params")
    result: dict[tuple[tuple[str, Any], ...], MethodConfig] = {}
    for values in expanded:
        config = configure(arm.method, values, f"{source}.params", arm.label)
        redundant = config.spec.redundant
        result.setdefault(tuple((name, value) for name, value in config.flat.items() if name not in redundant), config)
    if len(result) == len(expanded):
        return list(result.values()), []
    why = next(iter(result.values())).spec.reason or "equal settings"
    return list(result.values()), [f"{arm.label}: {len(result)} of {len(expanded)} settings are planned: {why}"]


def _redundant_draws(arm: ArmSpec, first: MethodConfig) -> list[str]:
    """A sentence on searched parameters of an arm that cannot change a ranking."""
    redundant = [name for name in first.spec.redundant if isinstance(arm.params.get(name), dict)]
    if not redundant:
        return []
    return [f"{arm.label}: every draw of {', '.join(redundant)} is run, although it changes no ranking: {first.spec.reason}"]


def _shared_rankings(candidates: list[MethodConfig]) -> list[str]:
    """Sentences on settings of different arms that have the same ranking."""
    by_identity: dict[Any, list[MethodConfig]] = defaultdict(list)
    for config in candidates:
        by_identity[config.identity].append(config)
    pairs: dict[tuple[str, ...], int] = defaultdict(int)
    for members in by_identity.values():
        arms = tuple(dict.fromkeys(config.arm or config.method for config in members))
        if len(arms) > 1:
            pairs[arms] += 1
    return [f"{' and '.join(arms)}: {n} settings have the same ranking; run once, shown for each" for arms, n in pairs.items()]
