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
from rankbench.fitting.stopping import STOP_METRIC
from rankbench.judge.printing import in_words
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.space import DRAWS, expand, kinds
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
        settings_by_arm = []
        for position, arm in enumerate(spec.arms):
            settings, about = settings_of(arm, spec, f"{source}: arms[{position}]")
            settings_by_arm.append((arm, settings))
            notes += unread(arm, settings)
            if spec.search.by != "random" and draws(arm):
                drawn.append((arm, settings))
                known += settings[:1] if arm.ranges else []  # the defaults, which are no draw
                notes += redundant_draws(arm, settings)
            else:
                known += settings
                notes += about
        return cls(tuple(known), tuple(drawn), (*notes, *unread_by_all(settings_by_arm)))

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
    expanded = expand(arm.params, spec.search.trials, spec.search.seed, f"{source}.params", distinct=True)
    result: dict[Any, MethodConfig] = {}
    about = []
    if arm.ranges == "registry":
        trials = spec.search.trials
        expanded = [arm.fixed, *(values for values in expanded if _fits(arm, values))][:trials]
        if len(expanded) < trials:
            why = "other draws were equal to them, or have values that do not fit together"
            about.append(f"{arm.label}: {len(expanded)} of {trials} settings are planned: {why}")
    for values in expanded:
        config = configure(arm.method, values, f"{source}.params", arm.label)
        redundant = config.spec.redundant
        others = tuple((name, value) for name, value in config.flat.items() if name not in redundant)
        result.setdefault((others, config.identity), config)
    if len(result) == len(expanded):
        return list(result.values()), about
    why = next(iter(result.values())).spec.reason or "equal settings"
    return list(result.values()), [*about, f"{arm.label}: {len(result)} of {len(expanded)} settings are planned: {why}"]


def largest_draw(arm: ArmSpec) -> list[MethodConfig]:
    """The setting with the largest value of each searched number, which needs most memory; none if the method refuses it."""
    values = dict(arm.params)
    for name in arm.searched:
        ((kind, stated),) = values[name].items()
        numbers = all(isinstance(value, int | float) for value in stated)
        values[name] = stated[0] if not numbers else stated[1] - 1 if kind == "randint" else max(stated)
    return [configure(arm.method, values, arm.label, arm.label)] if _fits(arm, values) else []


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
        chosen = arm.chosen.get(dataset, {})
        for name in chosen.keys() & arm.fixed.keys() - {"stop_metric"}:  # which a sweep may have given to all arms
            require(
                chosen[name] == arm.fixed[name],
                f"{key}.{dataset}: {name} is {chosen[name]}, and {arm.fixed[name]} under params; state it once",
            )
        values = arm.fixed | chosen
        result.append(configure(arm.method, values, key, arm.label))
        missing = ", ".join(name for name in arm.searched if name not in values)
        require(not missing, f"{key}.{dataset}: no {missing}, which the arm searches; state what the search chose")
    return result


def unread(arm: ArmSpec, settings: list[MethodConfig]) -> list[str]:
    """A sentence on parameters that the experiment searches and that no setting of the arm reads, such as `n_negatives` with
    objective=catalogue. What the registry searches is nobody's mistake.
    """
    if arm.ranges == "registry":
        return []
    fields = {field.name: field for field in settings[0].spec.fields()}

    def reads(config: MethodConfig, name: str) -> bool:
        # The epoch in which a part of the method begins has no meaning for an objective without this part.
        late = fields[name].metadata.get("late")
        return name in config.used and (not late or config.flat["objective"] in late)

    names = [name for name in arm.searched if not any(reads(config, name) for config in settings)]
    told = f"warning: {arm.label}: no setting reads {in_words(names, 'parameters')}" if names else ""
    return [f"{told}, so that searching this changes nothing"] if names else []


def unread_by_all(settings_by_arm: Iterable[tuple[ArmSpec, list[MethodConfig]]]) -> list[str]:
    """A sentence on each value that the experiment gives and that no setting of any arm reads. Arms share what a file states:
    it is no mistake if one of them does not read it.
    """
    given: dict[str, Any] = {}
    read: set[str] = set()
    for arm, settings in settings_by_arm:
        given |= arm.fixed
        read.update(*(config.used for config in settings))
    idle = {name: value for name, value in given.items() if name not in read}
    return [f"warning: {name}={value}: no setting of this experiment reads it" for name, value in idle.items()]


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


def unstoppable(examples: Iterable[MethodConfig], spec: ExperimentSpec) -> list[str]:
    """Sentences on arms whose trials the scheduler cannot stop: they are too short, or have patience=0."""
    if not spec.search.prunes:
        return []
    grace, short, blind, watching = spec.search.grace, dict[str, int](), dict[str, None](), set[str]()
    for config in examples:
        if isinstance(config.spec, Iterative) and config.stopping:
            watching.add(config.label)
            if (limit := config.spec.limit(config.params)) <= grace:
                short[config.label] = limit
        elif isinstance(config.spec, Iterative):
            blind[config.label] = None
    notes, effect = [], f"{spec.search.scheduler} stops none of their trials"
    if short:
        names = ", ".join(f"{arm} ({limit})" for arm, limit in short.items())
        notes.append(f"warning: search.grace: {grace} is no smaller than the number of iterations of {names}; {effect}")
    if arms := [arm for arm in blind if arm not in watching]:
        notes.append(f"warning: {in_words(arms, 'arms')}: {effect}, because with patience=0 they look at no validation set")
    return notes


def ends_by_another(examples: Iterable[MethodConfig], spec: ExperimentSpec) -> list[str]:
    """A sentence on arms whose fits end by the default metric, since they cannot follow the one that chooses settings."""
    metric = spec.search.choose.metric
    stated = {arm.label for arm in spec.arms if "stop_metric" in arm.params}
    ending = [config.label for config in examples if config.stopping and config.stopping.stop_metric != metric]
    arms = [label for label in dict.fromkeys(ending) if label not in stated]
    what = f"fits end by {STOP_METRIC}, since none can follow {metric}, by which settings are chosen"
    return [f"{in_words(arms, 'arms')}: {what}"] if arms else []


def idle_resources(examples: Iterable[MethodConfig], spec: ExperimentSpec, here: bool) -> list[str]:
    """A sentence on each key of `resources` that no method of the experiment can use; `here`: it runs on this machine alone."""
    methods, asked = [config.spec for config in examples], spec.resources
    used = {
        "workers": asked.workers == 1 or any(each.by_workers for each in methods),
        "nodes": asked.nodes in ("auto", 1) or (not here and any(each.distributed for each in methods)),
        "device": not asked.device.startswith("cuda") or any(each.on_device for each in methods),
    }
    where = " on this machine" * here
    return [f"warning: resources.{key}: no method of this experiment uses it{where}" for key in used if not used[key]]
