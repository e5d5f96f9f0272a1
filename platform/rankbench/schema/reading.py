"""Experiments as they are given: a file with its base, or the words of a command, and the part of one that words select."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankbench.core.config import override, read_yaml, validate
from rankbench.core.errors import ConfigError, require, shown
from rankbench.core.patterns import selected
from rankbench.core.registry import nearest
from rankbench.schema.datasets import flatten, with_card_names
from rankbench.schema.experiment import NO_FILE, ExperimentSpec, NotRun, in_full

LoadPlugin = Callable[[str, Path, str], Any]
BY_KEY = {"search", "final", "resources", "protocol"}  # what a file says of them is added to what its base says


def load_experiment(path: Path, changes: dict[str, Any], load_plugin: LoadPlugin | None = None) -> ExperimentSpec:
    """Return the experiment in a file, with dotted `changes` applied. The path of a dataset card is relative to the file or, if
    there is no such card, to the working folder; in `changes`, it is relative to the working folder. The file's plugins are
    loaded by `load_plugin(word, folder, source)` before the cards are read; without it, nothing that the file names is run.

    Raises ConfigError naming file and key.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such experiment file")
    spec = validate(ExperimentSpec, override(_with_base(in_full(read_yaml(path)), path), _whole_search(changes)), str(path))
    if load_plugin:
        for position, word in enumerate(spec.plugins):
            load_plugin(word, Path.cwd() if "plugins" in changes else path.parent, f"{path}: plugins[{position}]")
    folders = [Path.cwd()] if "datasets" in changes else [path.parent, Path.cwd()]
    return _with_cards(spec, folders, str(path))


def _with_base(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of a file with what it takes from its `base`, another file of its folder.

    Keys that the file does not have are those of the base, except what belongs to the base's own table; those in BY_KEY are
    taken key by key. An arm is that of the base with its name, or with the name `like`; what the file says of it replaces what
    the base says, and parameters one by one. An arm with a method and without `like` is the file's own. A file without arms has
    those of the base, with their published numbers. Raises ConfigError, naming the file, if there is no such file or arm, if
    the base has a base itself, or if it is not an experiment as it stands.
    """
    if "base" not in content:
        return content
    name = content["base"]
    require(isinstance(name, str) and Path(name).name == name, f"{path}: base: expected the name of a file in {path.parent}")
    base_path = path.parent / name
    require(base_path.is_file(), f"{path}: base: {base_path}: no such experiment file")
    base = in_full(read_yaml(base_path))
    require("base" not in base, f"{path}: base: {name} has a base itself; name that file")
    validate(ExperimentSpec, base, str(base_path))
    known = {arm.get("name") or arm["method"]: arm for arm in base.get("arms", [])}
    own_arms = content.get("arms", base.get("arms", []))
    require(isinstance(own_arms, list), f"{path}: arms: expected a list, got {shown(own_arms)}")
    arms = []
    for position, arm in enumerate(own_arms):
        require(isinstance(arm, dict), f"{path}: arms[{position}]: expected name and published")
        key = "like" if "like" in arm else "name"
        if key == "name" and "method" in arm:
            arms.append(arm)
            continue
        require(isinstance(arm.get(key), str), f"{path}: arms[{position}].{key}: expected the name of an arm of {name}")
        params = arm.get("params", {})
        require(isinstance(params, dict), f"{path}: arms[{position}].params: expected a mapping, got {shown(params)}")
        require(
            arm[key] in known,
            f"{path}: arms[{position}].{key}: {name} has no {arm[key]!r}{nearest(arm[key], known)}",
        )
        theirs = {each: value for each, value in known[arm[key]].items() if each != "published"}
        own = {each: value for each, value in arm.items() if each != "like"}
        arms.append(theirs | own | {"params": theirs.get("params", {}) | params})
    kept = {
        key: value for key, value in base.items() if key not in ("name", "question", "published", "not_run", "claims", "arms")
    }
    own = {key: value for key, value in content.items() if key != "base"}
    for key in BY_KEY & own.keys() & kept.keys():
        if isinstance(own[key], dict) and isinstance(kept[key], dict):
            own[key] = kept[key] | own[key]
    return kept | own | {"arms": arms}


def experiment_of_words(
    datasets: Sequence[str], methods: Sequence[str], changes: dict[str, Any], source: str
) -> ExperimentSpec:
    """Return an experiment without a file: names and patterns of datasets and methods, and dotted `changes`. Methods without a
    range are searched in those of the registry, unless a change says otherwise.

    A change whose path does not begin with a key of an experiment file is a parameter of the methods.

    Raises ConfigError naming `source` and the key.
    """
    values = {key if key.split(".")[0] in ExperimentSpec.model_fields else f"params.{key}": changes[key] for key in changes}
    values = key_by_key(values)
    content = {"name": NO_FILE, "datasets": [*datasets], "methods": [*methods], "search": {"ranges": "registry"}}
    return _with_cards(validate(ExperimentSpec, override(content, values), source), [Path.cwd()], source)


def _whole_search(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes in which `search: registry` says the ranges alone, as in a file."""
    return {"search.ranges" if key == "search" and isinstance(value, str) else key: value for key, value in changes.items()}


def key_by_key(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes in which a whole `search` or `final` is given key by key, so that the defaults of its other keys stay."""
    found: dict[str, Any] = {}
    for key, value in _whole_search(changes).items():
        found |= flatten(value, f"{key}.") if key in ("search", "final") and isinstance(value, dict) else {key: value}
    return found


def _with_cards(spec: ExperimentSpec, folders: Sequence[Path], source: str) -> ExperimentSpec:
    return spec.model_copy(update={"datasets": with_card_names(spec.datasets, folders, source)})


def of_datasets(spec: ExperimentSpec, words: Sequence[str], source: str) -> ExperimentSpec:
    """Return `spec`, which has no patterns, with the datasets that `words` select. Raises ConfigError if there is none."""
    names = set(selected(words, spec.dataset_names, f"{source}: --datasets"))
    kept = tuple(entry for entry, name in zip(spec.datasets, spec.dataset_names, strict=True) if name in names)
    return spec.model_copy(update={"datasets": kept})


def of_arms(spec: ExperimentSpec, patterns: Sequence[str], source: str) -> ExperimentSpec:
    """Return `spec` with the arms whose label matches a shell pattern ("*, MF"). Published numbers of other arms stay in the
    table.

    Raises ConfigError for a pattern without a match.
    """
    labels = [arm.label for arm in spec.arms]
    for pattern in patterns:
        require(bool(fnmatch.filter(labels, pattern)), f"{source}: --arms {pattern!r} matches none of: {'; '.join(labels)}")
    selected = [arm for arm in spec.arms if any(fnmatch.fnmatchcase(arm.label, pattern) for pattern in patterns)]
    left_out = tuple(
        NotRun(name=arm.label, why="left out by --arms", published=arm.published)
        for arm in spec.arms
        if arm not in selected and arm.published
    )
    return spec.model_copy(update={"arms": tuple(selected), "not_run": (*left_out, *spec.not_run)})
