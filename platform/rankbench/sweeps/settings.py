"""The settings of an experiment's arms, and what a user should know about them before they are run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rankbench.core.errors import ConfigError, require
from rankbench.data.cards import Card
from rankbench.experiment.job import MethodConfig, configure
from rankbench.fitting.method import Iterative
from rankbench.judge.printing import in_words
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.space import DRAWS, kinds
from rankbench.sweeps.search.random_draws import distinct_settings
from rankbench.sweeps.units import can_score


@dataclass(frozen=True)
class ArmSettings:
    """The settings of all arms: the `known` ones, and those of arms whose settings are `drawn` one after another by the results
    of earlier ones, of which these are examples. `notes`: sentences on settings that are left out or change nothing.
    """

    known: tuple[MethodConfig, ...]
    drawn: tuple[tuple[ArmSpec, list[MethodConfig]], ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, spec: ExperimentSpec, source: str) -> ArmSettings:
        """Raises ConfigError for a parameter that a method does not have or accept."""
        known: list[MethodConfig] = []
        drawn: list[tuple[ArmSpec, list[MethodConfig]]] = []
        notes: list[str] = []
        for position, arm in enumerate(spec.arms):
            settings, about = settings_of(arm, spec, f"{source}: arms[{position}]")
            if spec.search.by != "random" and draws(arm):
                drawn.append((arm, settings))
                known += settings[:1] if arm.ranges else []  # the defaults, which are no draw
                notes += redundant_draws(arm, settings)
            else:
                known += settings
                notes += about
        return cls(tuple(known), tuple(drawn), tuple(notes))

    @property
    def all(self) -> tuple[MethodConfig, ...]:
        return (*self.known, *(each for _, settings in self.drawn for each in settings))

    @property
    def examples(self) -> tuple[MethodConfig, ...]:
        """The known settings, and one of each arm that draws."""
        return (*self.known, *(settings[0] for _, settings in self.drawn))


def draws(arm: ArmSpec) -> bool:
    """Whether values of an arm's parameters are drawn."""
    return any(kind in DRAWS for kind in kinds(arm.params))


def settings_of(arm: ArmSpec, spec: ExperimentSpec, source: str) -> tuple[list[MethodConfig], list[str]]:
    """The arm's settings, and a sentence on those that are left out: they differ only in parameters that change no ranking
    there. Whether they do can depend on the others, as that of b does on how the ridge is given.

    In the ranges of the registry, the first setting is the default one, and draws that do not fit together are left out.
    """
    expanded = distinct_settings(arm.params, spec.search.trials, spec.search.seed, f"{source}.params")
    result: dict[Any, MethodConfig] = {}
    if arm.ranges == "registry":
        expanded = [values for values in expanded if _fits(arm, values)]
        fixed = {name: value for name, value in arm.params.items() if name not in arm.searched}
        expanded = [fixed, *expanded][: spec.search.trials]
    for values in expanded:
        config = configure(arm.method, values, f"{source}.params", arm.label)
        redundant = config.spec.redundant
        others = tuple((name, value) for name, value in config.flat.items() if name not in redundant)
        result.setdefault((others, config.identity), config)
    if len(result) == len(expanded):
        return list(result.values()), []
    why = next(iter(result.values())).spec.reason or "equal settings"
    return list(result.values()), [f"{arm.label}: {len(result)} of {len(expanded)} settings are planned: {why}"]


def _fits(arm: ArmSpec, values: dict[str, Any]) -> bool:
    """Whether the method accepts values together, each of which it accepts."""
    try:
        configure(arm.method, values)
    except ConfigError:
        return False
    return True


def chosen_settings(spec: ExperimentSpec, dataset: str, source: str) -> list[MethodConfig]:
    """One setting per arm, from the file. An arm with nothing to search needs no `chosen`; one that was not searched on this
    dataset is left out, unless that leaves none.
    """
    result = []
    unsearched = [arm for arm in spec.arms if dataset not in arm.chosen and arm.searched]
    for position, arm in enumerate(spec.arms):
        key = f"{source}: arms[{position}].chosen"
        require(len(unsearched) < len(spec.arms), f"{key}: nothing for {dataset}; run the search first")
        if arm in unsearched:
            continue
        values = {name: value for name, value in arm.params.items() if not isinstance(value, dict)}
        result.append(configure(arm.method, values | arm.chosen.get(dataset, {}), key, arm.label))
    return result


def redundant_draws(arm: ArmSpec, settings: list[MethodConfig]) -> list[str]:
    """A sentence on searched parameters of an arm that change no ranking of its first setting."""
    first = settings[0]
    given = {name: value for name, value in first.flat.items() if value is not None}

    def matters(name: str) -> bool:
        return any(configure(arm.method, given | {name: each.flat[name]}).identity != first.identity for each in settings)

    redundant = [name for name in first.spec.redundant if isinstance(arm.params.get(name), dict) and not matters(name)]
    if not redundant:
        return []
    return [f"{arm.label}: every draw of {', '.join(redundant)} is run, although it changes no ranking: {first.spec.reason}"]


def from_registry(spec: ExperimentSpec) -> list[str]:
    """A sentence on the arms that are searched in the ranges of the registry."""
    arms = [arm.label for arm in spec.arms if arm.ranges]
    ranges = f"searched in the ranges of the registry, {spec.search.trials} settings each, the defaults among them"
    return [f"{in_words(arms, 'arms')}: {ranges}; with search: none, settings are measured as they are given"] if arms else []


def shared_rankings(candidates: Iterable[MethodConfig]) -> list[str]:
    """Sentences on settings of different arms that have the same ranking."""
    by_identity: dict[Any, list[MethodConfig]] = defaultdict(list)
    for config in candidates:
        by_identity[config.identity].append(config)
    pairs: dict[tuple[str, ...], int] = defaultdict(int)
    for members in by_identity.values():
        arms = tuple(dict.fromkeys(config.label for config in members))
        if len(arms) > 1:
            pairs[arms] += 1
    return [f"{' and '.join(arms)}: {n} settings have the same ranking; run once, shown for each" for arms, n in pairs.items()]


def unable_arms(examples: Iterable[MethodConfig], cards: Iterable[Card]) -> dict[str, list[str]]:
    """Dataset → the arms that cannot score its users, for the datasets that have any."""
    arms = {card.name: [each.label for each in examples if not can_score(each, card)] for card in cards}
    return {name: list(dict.fromkeys(each)) for name, each in arms.items() if each}


def grace_beyond_the_end(examples: Iterable[MethodConfig], spec: ExperimentSpec) -> list[str]:
    """A sentence on arms whose trials end before the search may stop them."""
    if spec.search.scheduler == "none":
        return []
    grace, arms = spec.search.grace, dict[str, int]()
    for config in examples:
        if config.stopping and isinstance(config.spec, Iterative) and (limit := config.spec.limit(config.params)) <= grace:
            arms[config.label] = limit
    names = ", ".join(f"{arm} ({limit})" for arm, limit in arms.items())
    problem = f"warning: search.grace: {grace} is no smaller than the number of iterations of {names}"
    return [f"{problem}; {spec.search.scheduler} stops none of their trials"] if arms else []
