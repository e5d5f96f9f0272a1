"""Sentences on how the settings of a sweep were found: that nothing was searched, or that the search ended at an edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankbench.judge.printing import MANY, in_words
from rankbench.reports.rows import Row
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.stored_sweep import ChosenFile, ChosenRow


def untuned(experiment: ExperimentSpec, chosen: ChosenFile | None, rows: Sequence[Row]) -> list[str]:
    """Return sentences on the models of which nothing was searched. Models without parameters have nothing to search."""
    searched = {(row.dataset, row.arm): row.search for row in (chosen.rows if chosen else ())}
    arms = {arm.label: arm for arm in experiment.arms}
    measured = [row for row in rows if row.cells and row.params and row.arm in arms]
    kinds: dict[str, list[str]] = {}
    for row in measured:
        if kind := _without_search(arms[row.arm], row.dataset, searched.get((row.dataset, row.arm)), experiment):
            kinds.setdefault(kind, []).append(row.arm)
    sentences = []
    for kind, labels in kinds.items():
        who = "Every model" if len(labels) == len(measured) > 1 else in_words([*dict.fromkeys(labels)])
        sentences.append(f"{who}: {kind}.")
    return sentences


def _without_search(arm: ArmSpec, dataset: str, search: str | None, experiment: ExperimentSpec) -> str:
    """How the setting of an arm was given, in words; empty if it was searched, by this sweep or by an earlier one."""
    only_defaults = arm.ranges == "registry" and experiment.search.trials == 1
    if (arm.searched and not only_defaults) or (search is None and dataset in arm.chosen):
        return ""
    given = [name for name in arm.params if name not in arm.searched]
    return "settings as given, nothing searched" if given else "defaults, nothing searched"


def at_the_end(chosen: ChosenFile | None) -> list[str]:
    """Return one line for each chosen value at the end of its range; the rows of several datasets share a line."""
    rows = chosen.rows if chosen else ()
    several = len({row.dataset for row in rows}) > 1
    found: dict[str, list[str]] = {}
    for row, name, (low, high) in _ends(rows):
        found.setdefault(f"{row.arm}: {name} is at the end of its range ({low:g} to {high:g})", []).append(row.dataset)
    return [f"{line} on {in_words(datasets)}" if several else line for line, datasets in found.items()]


def ends_sentence(lines: Sequence[str], extended: bool) -> list[str]:
    """Return a sentence of the first of the lines."""
    if not lines:
        return []
    more = f"; so are {len(lines) - MANY} other parameters" if len(lines) > MANY else ""
    advice = "" if extended else " Better values may lie beyond it, where search.extend=true goes on."
    return [f"{'; '.join(lines[:MANY])}{more}.{advice}"]


def _ends(rows: Iterable[ChosenRow]) -> Iterable[tuple[ChosenRow, str, tuple[float, float]]]:
    return ((row, name, bounds) for row in rows for name, bounds in row.ends.items())
