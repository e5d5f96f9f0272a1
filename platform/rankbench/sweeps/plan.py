"""The plan of a sweep, made before the first task: its datasets, its settings, and its fits with their cost."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError, require
from rankbench.core.registry import nearest
from rankbench.data.cards import Card
from rankbench.data.cards import card_names as names_of_cards
from rankbench.data.prepare import Dataset, prepare
from rankbench.evaluation.metrics import MetricSet, metric_set, require_better_if_larger, require_within
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import MethodConfig
from rankbench.experiment.methods import method
from rankbench.judge.printing import counted, in_words
from rankbench.schema.datasets import Entry, card_of, with_split_seed
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.space import DRAWS, MOST, kinds
from rankbench.schema.stored_sweep import NotAvailable
from rankbench.sweeps.selection import by_name
from rankbench.sweeps.settings import (
    chosen_settings,
    from_registry,
    grace_beyond_the_end,
    redundant_draws,
    settings_of,
    shared_rankings,
    unable_arms,
)
from rankbench.sweeps.units import AdaptiveSearch, Unit, can_score, part_of_final, part_of_refit, units

MOST_SPLITS = 100  # of a dataset, each of which is prepared for the plan


@dataclass(frozen=True)
class Plan:
    """A checked experiment.

    `declared` are the cards of all its datasets, `cards` those whose data are available, and `not_available` maps the names of
    the others to the reasons. `search` are the units with known parameters, `adaptive` the searches that draw theirs later.
    `given` maps a dataset to the settings that are measured without a search. `final_cards` are the cards of the final runs,
    one per dataset and split seed. `notes` are sentences on settings that are left out or share a fit. `cpus`: as in `plan`.
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
    cpus: int | None = None

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
        if experiment.get("final", {}).pop("pairs", None) and not experiment["final"]:
            del experiment["final"]  # which pairs are tested decides no result of a run
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
    chooses = metric_set([spec.search.choose.metric], source=f"{source}: search.choose.metric")
    for key, words in (("metrics", spec.metrics), ("published", spec.report_metrics)):
        metric_set(words, spec.cutoffs, f"{source}: {key}")
    metrics = metric_set([*spec.metrics, *chooses.names, *with_both_recalls(spec.report_metrics)], spec.cutoffs)
    notes: list[str] = []
    final_notes: list[str] = []
    declared = [card_of(entry, environment, f"{source}: datasets[{i}]") for i, entry in enumerate(spec.datasets)]
    card_names = [card.name for card in declared]
    doubled = {name for name in card_names if card_names.count(name) > 1}
    require(not doubled, f"{source}: datasets: {', '.join(doubled)} is given twice; its rows could not be distinguished")
    # A file may be run on some of its datasets; its entries for the others are ignored then.
    known = {*names_of_cards(environment), *card_names}
    drawing = sum(any(kind in DRAWS for kind in kinds(arm.params)) for arm in spec.arms)
    _require_bounded("search", {"dataset": len(declared), "model": drawing, "trial": spec.search.trials}, source)
    candidates: list[MethodConfig] = []
    drawing_arms: list[tuple[ArmSpec, list[MethodConfig]]] = []
    for position, arm in enumerate(spec.arms):
        key = f"{source}: arms[{position}]"
        for name in ("published", "chosen", "printed", "as_published"):
            _require_known(getattr(arm, name), known, f"{key}.{name}")
        settings, setting_notes = settings_of(arm, spec, key)
        if spec.search.by != "random" and any(kind in DRAWS for kind in kinds(arm.params)):
            drawing_arms.append((arm, settings))
            candidates += settings[:1] if arm.ranges else []  # the defaults, which are no draw
            notes += redundant_draws(arm, settings)
        else:
            candidates += settings
            notes += setting_notes
    for position, row in enumerate(spec.not_run):
        key = f"{source}: not_run[{position}]"
        require(row.name not in names, f"{key}: {row.name} is already the name of an arm")
        _require_known(row.published, known, f"{key}.published")
    _require_few_finals(spec, source)
    chosen = {card.name: chosen_settings(spec, card.name, source) for card in declared} if use_chosen else {}
    given = [each for settings in chosen.values() for each in settings]
    for config in given:
        config.require_end(None if spec.final.fit_on == "auto" else spec.final.fit_on, f"{source}: final.fit_on: train+valid")
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
    unseeded = dict.fromkeys(config.label for config in examples if not config.spec.seeded)
    if len(spec.final.seeds) > 1 and unseeded:
        final_notes.append(f"{', '.join(unseeded)}: the method uses no seed; run with seed {spec.final.seeds[0]} alone")
    left_out = unable_arms(examples, cards)
    every_one = len(left_out) == len(cards) and all(len(arms) == len(spec.arms) for arms in left_out.values())
    require(not every_one, f"{source}: its methods score only users they were fitted on, and its datasets hold users out")
    by_arms: dict[str, list[str]] = defaultdict(list)
    for name, arms in left_out.items():
        by_arms[in_words(arms, "arms")].append(name)
    why = "only methods with fold-in score held-out users"
    final_notes += [f"{in_words(names, 'datasets')}: without {arms}: {why}" for arms, names in by_arms.items()]
    final = Plan(
        spec, tuple(declared), tuple(cards), metrics, (), tuple(final_notes), tuple(final_cards),
        not_available=not_available, cpus=cpus,
    )  # fmt: skip
    if "search" in spec.model_fields_set and "choose" in spec.search.model_fields_set:
        for dataset in datasets:
            require_within(chooses, len(dataset.items), dataset.name, f"{source}: search.choose.metric")
    if {"cutoffs", "metrics"} & spec.model_fields_set:
        for dataset in datasets:
            require_within(metrics, len(dataset.items), dataset.name, f"{source}: cutoffs")
    able = {card.name: [each for each in chosen.get(card.name, candidates) if can_score(each, card)] for card in cards}
    if use_chosen:
        lacking = [f"{name}: {arm.label}: no chosen setting, so it is left out" for name in (card.name for card in cards)
                   for arm in spec.arms if arm.label not in {each.arm for each in chosen[name]}]  # fmt: skip
        return replace(final, notes=(*final.notes, *lacking), given=able)
    notes += from_registry(spec)
    notes += shared_rankings(candidates)
    notes += grace_beyond_the_end(examples, spec)
    sizes = {dataset.name: Size.of(dataset) for dataset in datasets}
    search = [unit for card in cards for unit in units(card, sizes[card.name], able[card.name], spec, metrics, "search", cpus)]
    n_settings = sum(map(len, able.values()))
    if n_settings > len(search):
        notes.append(f"{n_settings} settings need {len(search)} fits: the others share a fit")
    adaptive = []
    for card, (arm, settings) in itertools.product(cards, drawing_arms):
        if not can_score(settings[0], card):
            continue
        drafts = units(card, sizes[card.name], settings, spec, metrics, "search", cpus)
        largest = max(drafts, key=lambda unit: (unit.memory_bytes, unit.cost))
        draft = replace(largest, job=replace(largest.job, configs=largest.job.configs[:1]))
        if trials := spec.search.trials - bool(arm.ranges):
            adaptive.append(AdaptiveSearch(arm, draft, trials))
    return replace(final, search=tuple(search), notes=(*notes, *final_notes), adaptive=tuple(adaptive))


def _require_few_finals(spec: ExperimentSpec, source: str) -> None:
    """Raise ConfigError if a sweep would have too many final runs, or prepare too many splits."""
    splits = len(spec.final.split_seeds or ("own",))
    require(
        splits <= MOST_SPLITS,
        f"{source}: final.split_seeds: {splits:,} splits of each dataset, where a sweep prepares at most {MOST_SPLITS}",
    )
    seeded = sum(method(arm.method).seeded for arm in spec.arms)
    factors = {"dataset": len(spec.datasets), "split seed": splits}
    _require_bounded("final", factors | {"model": seeded, "seed": len(spec.final.seeds)}, source)
    _require_bounded("final", factors | {"model": len(spec.arms)}, source)


def _require_bounded(stage: str, factors: dict[str, int], source: str) -> None:
    n, words = math.prod(factors.values()), " x ".join(counted(number, name) for name, number in factors.items())
    require(n <= MOST, f"{source}: {stage}: {n:,} fits ({words}), where a stage has at most {MOST:,}; use fewer of them")


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


def with_both_recalls(metrics: Iterable[str]) -> tuple[str, ...]:
    """`metrics` with recall_capped@k after every recall@k, for papers that leave open which one they mean."""
    both = [(name, name.replace("recall@", "recall_capped@")) if name.startswith("recall@") else (name,) for name in metrics]
    return tuple(dict.fromkeys(name for names in both for name in names))


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
    kept: dict[int, tuple[Card, list[np.ndarray]]] = {}
    for seed in spec.final.split_seeds:
        other = card_of(with_split_seed(entry, seed), environment, source)
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
