"""An experiment without patterns: its datasets and methods by name, as a plan, a stored sweep and a report need them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rankbench.core.config import nearest_key
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.names import ALL
from rankbench.core.patterns import WITHOUT, is_pattern, selected
from rankbench.core.registry import nearest
from rankbench.data.cards import card_names
from rankbench.evaluation.metrics import require_of_hits
from rankbench.experiment.job import configure
from rankbench.experiment.methods import families, method, registered
from rankbench.experiment.ranges import space_of
from rankbench.fitting.stopping import STOP_METRIC
from rankbench.schema.datasets import without_patterns
from rankbench.schema.experiment import ArmSpec, ExperimentSpec, MethodChoice


def by_name(spec: ExperimentSpec, environment: Environment, source: str) -> ExperimentSpec:
    """Return `spec` with patterns of datasets replaced by cards, and `methods` by one arm for each method.

    `params` become parameters of the arms that have them and do not set them. A method with an arm of its own gets no second
    one; of several choices that select a method, the one by its name counts, or else the first. With `search: registry`, arms
    without a range get those of the registry, and so does an arm with `ranges: registry`. The metric that chooses settings also
    ends fits, unless an arm states another one.

    Raises ConfigError, beginning with `source`, for a pattern without a match, for a parameter that no method has, for a range
    in `params` of an arm with `ranges: registry`, and for a claim about an arm that is not there.
    """
    datasets = without_patterns(spec.datasets, card_names(environment), source)
    every = spec.search.ranges == "registry"
    arms = _with_params([*spec.arms, *_arms_of(spec, source)], spec, source)
    arms = tuple(_with_ranges(arm, f"{source}: arms: {arm.label}") if every or arm.ranges else arm for arm in arms)
    arms = tuple(_ended_by(arm, spec.search.choose.metric) for arm in arms)
    whole = spec.model_copy(update={"datasets": datasets, "arms": arms, "methods": (), "params": {}})
    require(not spec.methods or not whole.missing_arm, f"{source}: {whole.missing_arm}")
    return whole


def of_methods(spec: ExperimentSpec, words: Sequence[str], source: str) -> ExperimentSpec:
    """Return `spec`, which has no patterns, with the arms whose method `words` select. Raises ConfigError if there is none."""
    names = set(_select(words, source))
    arms = tuple(arm for arm in spec.arms if arm.method in names)
    own = ", ".join(dict.fromkeys(arm.method for arm in spec.arms))
    require(bool(arms), f"{source}: {' '.join(words)} selects none of its methods, {own}")
    return spec.model_copy(update={"arms": arms})


def _arms_of(spec: ExperimentSpec, source: str) -> list[ArmSpec]:
    choices = spec.methods
    if not choices:
        return []
    words = [choice.word for choice in choices]
    names = set(_select(words, f"{source}: methods"))
    chosen = [choice for choice in choices if not choice.word.startswith(WITHOUT)] or [MethodChoice(method=ALL)]
    own = {arm.method for arm in spec.arms}
    arms: dict[str, ArmSpec] = {}
    named: dict[str, dict[str, Any]] = {}
    for choice in chosen:
        own_names = [name for name in _select([choice.word], f"{source}: methods") if name in names]
        require_somewhere(choice.params, own_names, f"{source}: methods: {choice.word}: params")
        by_itself = not is_pattern(choice.word)
        same = not by_itself or named.setdefault(choice.word, choice.params) == choice.params
        require(same, f"{source}: methods: {choice.word} is given twice with other params; give each a row of its own in arms")
        for name in own_names:
            if name not in own and (by_itself or name not in arms):
                arms[name] = ArmSpec(method=name, params=_of(choice.params, name))
    return [*arms.values()]


def _select(words: Sequence[str], source: str) -> list[str]:
    """Names of the methods that `words` select. Those trained by gradient steps are only imported if a word is a pattern."""
    if not any(is_pattern(word) for word in words):
        for word in words:
            try:
                method(word)
            except ConfigError as error:
                raise ConfigError(f"{source}: {error}") from None
        return [*words]
    return selected(words, registered().names(), source, families())


def _with_params(arms: Sequence[ArmSpec], spec: ExperimentSpec, source: str) -> tuple[ArmSpec, ...]:
    if not spec.params:
        return tuple(arms)
    require_somewhere(spec.params, [arm.method for arm in arms], f"{source}: params")
    whole = tuple(arm.model_copy(update={"params": _of(spec.params, arm.method) | arm.params}) for arm in arms)
    for arm in whole:
        two = f"{', '.join(arm.searched)} has a range here, and {arm.label} has ranges: {arm.ranges}"
        require(not (arm.ranges and arm.searched), f"{source}: params: {two}; leave one of them out")
    return whole


def _with_ranges(arm: ArmSpec, source: str) -> ArmSpec:
    """Return an arm without a range with those of the registry for the parameters that it does not set."""
    if arm.searched:
        return arm
    space = space_of(configure(arm.method, arm.params, source, arm.label), arm.params)
    if space:
        return arm.model_copy(update={"params": arm.params | space, "ranges": "registry"})
    return arm.model_copy(update={"ranges": None}) if arm.ranges else arm


def _ended_by(arm: ArmSpec, metric: str) -> ArmSpec:
    """Return an arm whose fits end by `metric`, if they end early, the arm does not say by what, and a fit can follow it."""
    if metric == STOP_METRIC or "stop_metric" in arm.params or arm.params.get("patience") == 0:
        return arm
    try:
        require_of_hits(metric, "")
        defaults = {field.name: field.default for field in method(arm.method).fields()}
    except ConfigError:  # of a metric that cannot be followed, or of what is named when the experiment is checked
        return arm
    if not arm.params.get("patience", defaults.get("patience")):
        return arm
    return arm.model_copy(update={"params": arm.params | {"stop_metric": metric}})


def _of(params: dict[str, Any], name: str) -> dict[str, Any]:
    own = {field.name for field in method(name).fields()}
    return {key: value for key, value in params.items() if key in own}


def require_somewhere(params: dict[str, Any], names: Collection[str], source: str) -> None:
    """Raise ConfigError, with `source` and the nearest name, for a parameter that none of the methods `names` has."""
    if not params:
        return
    known = {field.name for name in names for field in method(name).fields()}
    for key in params:
        hint = nearest(key, known) or nearest_key(ExperimentSpec, key)
        require(key in known, f"{source}.{key}: none of the methods has this parameter{hint}")
