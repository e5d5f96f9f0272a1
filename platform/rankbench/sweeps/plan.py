"""The plan of a sweep, made before the first task: its datasets, its settings, and its fits with their cost."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.data.cards import Card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.experiment.job import MethodConfig
from rankbench.judge.printing import in_words
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import NotAvailable
from rankbench.sweeps.plan_data import PlanData
from rankbench.sweeps.search.extend_range import STEPS
from rankbench.sweeps.selection import by_name
from rankbench.sweeps.settings import (
    ArmSettings,
    chosen_settings,
    ends_by_another,
    from_registry,
    idle_resources,
    largest_draw,
    shared_rankings,
    unable_arms,
    unstoppable,
)
from rankbench.sweeps.spec_checks import (
    checked_metrics,
    declared_cards,
    require_few_draws,
    require_few_finals,
    require_names,
    require_parameters,
    require_resources,
)
from rankbench.sweeps.units import AdaptiveSearch, Unit, can_score, part_of_final, part_of_refit, units

# What decides no run, of an experiment and of an arm: a sweep goes on after it was edited.
OF_REPORTS = {"question", "resources", "not_run", "claims", "protocol", "unprinted"}
OF_ROWS = ("costs", "printed", "unprinted", "as_published", "protocol", "variant_of", "cause", "account", "after_test")


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
        experiment = self.spec.model_dump(mode="json", exclude=OF_REPORTS, exclude_defaults=True)
        if experiment.get("final", {}).pop("pairs", None) and not experiment["final"]:
            del experiment["final"]  # which pairs are tested decides no result of a run
        for arm in experiment.get("arms", ()):
            for name in OF_ROWS:
                arm.pop(name, None)
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
    require_names(spec, source)
    require_parameters(spec, source)
    require_resources(spec, cpus, source)
    metrics = checked_metrics(spec, source)
    declared = declared_cards(spec, environment, source)
    require_few_draws(spec, source)
    settings = ArmSettings.of(spec, source)
    require_few_finals(spec, source)
    chosen = {card.name: chosen_settings(spec, card.name, source) for card in declared} if use_chosen else {}
    given = [each for configs in chosen.values() for each in configs]
    for config in given:
        config.require_end(None if spec.final.fit_on == "auto" else spec.final.fit_on, f"{source}: final.fit_on: train+valid")
    for config in (*settings.examples, *given):
        if config.spec.by_workers:
            config.require_workers(spec.resources.workers, f"{source}: resources.workers: {spec.resources.workers}")
    measured, part_of = (given, part_of_final) if use_chosen else (settings.all, part_of_refit)
    data = PlanData.of(
        spec, declared, environment, source, require_all, lambda card: {part_of(config, card, spec) for config in measured}
    )
    data.require_within_cutoffs(spec, metrics, source)
    notes = (*data.notes, *_unseeded(settings.examples, spec), *_left_out(settings.examples, data.cards, spec, source))
    notes += tuple(idle_resources(settings.examples, spec, here=cpus is not None))
    final = Plan(spec, declared, data.cards, metrics, (), notes, data.final_cards, not_available=data.not_available, cpus=cpus)
    able = {card.name: [each for each in chosen.get(card.name, settings.known) if can_score(each, card)] for card in data.cards}
    if use_chosen:
        lacking = [f"{name}: {arm.label}: no chosen setting, so it is left out" for name in able
                   for arm in spec.arms if arm.label not in {each.arm for each in chosen[name]}]  # fmt: skip
        return replace(final, notes=(*notes, *lacking), given=able)
    about = [*settings.notes, *from_registry(spec), *shared_rankings(settings.known)]
    about += [*unstoppable(settings.examples, spec), *ends_by_another(settings.examples, spec)]
    if spec.search.extend:
        about.append(f"search.extend: fits beyond the ends of ranges are not counted: at most {STEPS} for each searched number")
    sizes = {dataset.name: Size.of(dataset) for dataset in data.datasets}

    def units_of(card: Card, configs: Sequence[MethodConfig]) -> list[Unit]:
        return units(card, sizes[card.name], configs, spec, metrics, "search", cpus)

    search = [unit for card in data.cards for unit in units_of(card, able[card.name])]
    n_settings = sum(map(len, able.values()))
    if n_settings > len(search):
        about.append(f"{n_settings} settings need {len(search)} fits: the others share a fit")
    adaptive = []
    for card, (arm, drawn) in itertools.product(data.cards, settings.drawn):
        trials = spec.search.trials - bool(arm.ranges)
        if trials and can_score(drawn[0], card):
            some = units_of(card, drawn)
            largest = max([*some, *units_of(card, largest_draw(arm))], key=lambda unit: unit.memory_bytes)
            job = replace(largest.job, configs=largest.job.configs[:1])
            draft = replace(largest, job=job, cost=fmean(unit.cost for unit in some))
            adaptive.append(AdaptiveSearch(arm, draft, trials))
    return replace(final, search=tuple(search), notes=(*about, *notes), adaptive=tuple(adaptive))


def _unseeded(examples: Iterable[MethodConfig], spec: ExperimentSpec) -> list[str]:
    """A sentence on arms that several seeds would measure several times."""
    arms = dict.fromkeys(config.label for config in examples if not config.spec.seeded)
    if len(spec.final.seeds) == 1 or not arms:
        return []
    return [f"{', '.join(arms)}: the method uses no seed; run with seed {spec.final.seeds[0]} alone"]


def _left_out(examples: Iterable[MethodConfig], cards: Sequence[Card], spec: ExperimentSpec, source: str) -> list[str]:
    """Sentences on arms that cannot score the users of a dataset. Raises ConfigError if no arm can score those of any."""
    unable = unable_arms(examples, cards)
    every_one = len(unable) == len(cards) and all(len(arms) == len(spec.arms) for arms in unable.values())
    require(not every_one, f"{source}: its methods score only users they were fitted on, and its datasets hold users out")
    by_arms: dict[str, list[str]] = defaultdict(list)
    for name, arms in unable.items():
        by_arms[in_words(arms, "arms")].append(name)
    why = "only methods with fold-in score held-out users"
    return [f"{in_words(names, 'datasets')}: without {arms}: {why}" for arms, names in by_arms.items()]
