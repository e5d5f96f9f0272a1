"""Say in a sentence per dataset what its paired tests show, in one more what they show over all datasets, and how the settings
were found: that nothing was searched, or that the search ended at an edge.

The tests are those of judge/compare.py, over users and corrected by Holm's method for all pairs of models. A model leads
if it has the best mean; a model is significantly different from it if both tests say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rankbench.evaluation.metrics import better_if_larger
from rankbench.judge.compare import Comparison
from rankbench.judge.printing import MANY, in_words
from rankbench.reports.rows import ReportRow
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.stored_sweep import ChosenRow


@dataclass(frozen=True)
class Conclusion:
    """What was found on one dataset in one metric. Of the other models, `tied` differ from the `leader` without significance,
    `identical` have its value for every user, and `behind` are worse. `leader` is None if fewer than two were compared.
    """

    dataset: str
    metric: str | None
    leader: str | None
    tied: tuple[str, ...]
    identical: tuple[str, ...]
    behind: tuple[str, ...]
    missing: tuple[str, ...]
    stand_in: bool
    sentence: str = ""

    @property
    def leading(self) -> tuple[str, ...]:
        """The leader and all models that are not significantly different from it."""
        return (self.leader, *self.identical, *self.tied) if self.leader else ()


@dataclass(frozen=True)
class Conclusions:
    """One conclusion per dataset, and sentences on all of them: the `summary` if there are several, and `caveats`."""

    datasets: tuple[Conclusion, ...] = ()
    summary: str = ""
    caveats: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences in the order of reading."""
        each = tuple(f"{one.dataset}: {one.sentence}" if len(self.datasets) > 1 else one.sentence for one in self.datasets)
        return (*([self.summary] if self.summary else []), *each, *self.caveats)


def deciding_metric(pairs: Sequence[Comparison], chosen_by: str) -> str | None:
    """Return the compared metric that conclusions are about: `chosen_by`, that of the search, or else the first of which more
    is better; None if no such metric was compared.
    """
    metrics = dict.fromkeys(pair.metric for pair in pairs if better_if_larger(pair.metric))
    return chosen_by if chosen_by in metrics else next(iter(metrics), None)


def conclude(
    rows: Sequence[ReportRow],
    pairs: Sequence[Comparison],
    chosen_by: str,
    stand_ins: Sequence[str] = (),
    finished: bool = True,
    tuning: Sequence[str] = (),
) -> Conclusions:
    """Return the conclusions from the rows of a table and its paired tests.

    `chosen_by`: the metric of the search. `stand_ins`: datasets in place of others. `finished`: whether the sweep has ended.
    `tuning`: sentences on how the settings were found.
    """
    metric = deciding_metric(pairs, chosen_by)
    datasets = tuple(
        _of_dataset(dataset, [row for row in rows if row.dataset == dataset], pairs, metric, dataset in stand_ins, finished)
        for dataset in dict.fromkeys(row.dataset for row in rows)
    )
    compared = [each for each in datasets if each.leader]
    return Conclusions(datasets, _summary(compared, rows), (*tuning, *_caveats(compared, rows)))


def _of_dataset(
    dataset: str, rows: Sequence[ReportRow], pairs: Sequence[Comparison], metric: str | None, stand_in: bool, finished: bool
) -> Conclusion:
    measured = [row.arm for row in rows if not row.missing]
    missing = tuple(row.arm for row in rows if row.missing)
    own = [pair for pair in pairs if pair.dataset == dataset]
    deciding = [pair for pair in own if pair.metric == metric]
    found = Conclusion(
        dataset=dataset,
        metric=metric if deciding else None,
        leader=deciding[0].against if deciding else None,
        tied=tuple(pair.model for pair in deciding if not pair.identical and not pair.distinguishable),
        identical=tuple(pair.model for pair in deciding if pair.identical),
        behind=tuple(pair.model for pair in deciding if pair.distinguishable),
        missing=missing,
        stand_in=stand_in,
    )
    if deciding:
        compared = [row for row in rows if row.arm in (*found.leading, *found.behind)]
        sentence = f"{_verdict(found, deciding)}{_other_metrics(found, own)}{_more_splits(compared)}"
    else:
        sentence = _untested(rows, measured, finished)
    if measured and missing:
        states = dict.fromkeys(row.missing for row in rows if row.missing)
        sentence += f" {len(missing)} of {len(rows)} rows have no result ({'; '.join(states)})."
    if measured and stand_in:
        sentence += " These data are a stand-in, so this says nothing about the data that they stand for."
    return replace(found, sentence=sentence)


def _verdict(found: Conclusion, pairs: Sequence[Comparison]) -> str:
    tied, identical, behind = found.tied, found.identical, found.behind
    parts = [f"{found.leader} leads in {found.metric} ({pairs[0].mean_against:.4f})"]
    if identical:
        parts.append(f"{in_words(identical)} {_verb(identical, 'has', 'have')} the same value for every user")
    if tied:
        parts.append(f"{in_words(tied)} {_verb(tied, 'is', 'are')} not significantly different from it")
    if behind:
        best = max((pair for pair in pairs if pair.model in behind), key=lambda pair: pair.difference)
        distance = "" if best.relative_percent is None else f" (-{_percent(-best.relative_percent)})"
        if len(behind) == 1:
            parts.append(f"{best.model} is worse{distance}")
        else:
            others = "all other models" if not tied and not identical else in_words(behind)
            parts += [f"{others} are worse", f"the closest is {best.model}{distance}"]
    elif len(tied) + len(identical) == len(pairs) and not identical and len(tied) > 1:
        parts[1] = f"none of the other {len(tied)} models is significantly different from it"
    return "; ".join(parts) + "."


def _other_metrics(found: Conclusion, pairs: Sequence[Comparison]) -> str:
    """Return a sentence on the metrics in which a model leads that is behind in the deciding one."""
    leaders = {pair.metric: pair.against for pair in pairs if pair.metric != found.metric and better_if_larger(pair.metric)}
    others = {name: best for name, best in leaders.items() if best not in found.leading}
    return "".join(f" In {name}, {best} leads." for name, best in others.items())


def _more_splits(rows: Sequence[ReportRow]) -> str:
    """Return a sentence on the models with means over more splits than the tests, which need a run of each model on a split."""
    common = set.intersection(*(set(row.split_seeds) for row in rows))
    more = [f"{row.arm} ({len(row.split_seeds)})" for row in rows if len(row.split_seeds) > len(common)]
    if not more:
        return ""
    return (
        f" The table's means are over all splits of {in_words(more)}; the tests use only the {len(common)} on which every "
        "model has a result."
    )


def _untested(rows: Sequence[ReportRow], measured: Sequence[str], finished: bool) -> str:
    if not finished:
        return "The sweep is not finished, so nothing was compared yet."
    if not measured:
        states = dict.fromkeys(row.missing for row in rows)
        return f"Nothing was measured ({'; '.join(states)})."
    if len(measured) == 1:
        return f"Only {measured[0]} was measured, so there is nothing to compare."
    return f"{len(measured)} models were measured and not tested against each other, so there is no conclusion."


def _summary(compared: Sequence[Conclusion], rows: Sequence[ReportRow]) -> str:
    """Return how often each model is in the leading group, if several datasets were compared."""
    if len(compared) < 2:
        return ""
    names = {each.dataset for each in compared}
    measured: dict[str, int] = {}
    for row in rows:
        if row.dataset in names and not row.missing:
            measured[row.arm] = measured.get(row.arm, 0) + 1
    leading = {arm: sum(arm in each.leading for each in compared) for arm in measured}
    order = sorted((arm for arm in leading if leading[arm]), key=lambda arm: -leading[arm])
    everywhere = [arm for arm in order if leading[arm] == len(compared)]
    start = f"Over {len(compared)} datasets"
    if stand_ins := sum(each.stand_in for each in compared):
        start += f" ({stand_ins} of them stand-ins)"
    if everywhere:
        verb = _verb(everywhere, "leads or is", "lead or are")
        return f"{start}, {in_words(everywhere)} {verb} not significantly different from the leader on each."
    first, *others = [f"on {leading[arm]} of {measured[arm]}" for arm in order[:MANY]]
    shares = [f"{order[0]} leads or is not significantly different from the leader {first}"]
    shares += [f"{arm} {share}" for arm, share in zip(order[1:], others, strict=False)]
    more = f", and {len(order) - MANY} other models on some" if len(order) > MANY else ""
    return f"{start}, no model leads on each: {', '.join(shares)}{more}."


def _caveats(compared: Sequence[Conclusion], rows: Sequence[ReportRow]) -> list[str]:
    """Return what the tests leave open: seeds, splits, and models that were fitted on less than the others."""
    if not compared:
        return []
    measured = [row for row in rows if not row.missing and row.dataset in {each.dataset for each in compared}]
    return [_of_seeds(measured), *_of_parts(measured)]


def _of_parts(measured: Sequence[ReportRow]) -> Iterator[str]:
    parts: dict[str, set[str]] = {}
    for row in measured:
        parts.setdefault(row.dataset, set()).update(row.fit_on)
    alone = [row.arm for row in measured if len(parts[row.dataset]) > 1 and "train" in row.fit_on]
    if arms := list(dict.fromkeys(alone)):
        who = f"{in_words(arms)} {_verb(arms, 'was', 'were')} fitted on train alone"
        yield f"{who}, other models on valid, too: a difference can come from that."


def _of_seeds(measured: Sequence[ReportRow]) -> str:
    drawing = [row for row in measured if row.seeded is not False]  # the others are the same with every seed
    once = [row for row in drawing if len(row.seeds) * len(row.split_seeds) < 2]
    tests = "The tests are over users, corrected for all pairs of models"
    if not drawing:
        return f"{tests}."
    if not once:
        return f"{tests}; a user's value is the mean over seeds and splits."
    arms = list(dict.fromkeys(row.arm for row in once))
    who = "every model was" if len(once) == len(measured) else f"{in_words(arms)} {_verb(arms, 'was', 'were')}"
    unsure = "" if all(row.seeded for row in once) else ", where a method uses them,"
    return f"{tests}; {who} run once, so differences between seeds{unsure} are not in the tests."


def untuned(experiment: ExperimentSpec, chosen: Sequence[ChosenRow], rows: Sequence[ReportRow]) -> list[str]:
    """Return sentences on the models of which nothing was searched. Models without parameters have nothing to search."""
    searched = {(row.dataset, row.arm): row.search for row in chosen}
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


def at_the_end(rows: Sequence[ChosenRow]) -> list[str]:
    """Return one line for each chosen value at the end of its range; the rows of several datasets share a line."""
    several = len({row.dataset for row in rows}) > 1
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, (low, high) in row.ends.items():
            found.setdefault(f"{row.arm}: {name} is at the end of its range ({low:g} to {high:g})", []).append(row.dataset)
    return [f"{line} on {in_words(datasets)}" if several else line for line, datasets in found.items()]


def ends_sentence(lines: Sequence[str], extended: bool) -> list[str]:
    """Return a sentence of the first of the lines."""
    if not lines:
        return []
    more = f"; so are {len(lines) - MANY} other parameters" if len(lines) > MANY else ""
    advice = "" if extended else " Better values may lie beyond it, where search.extend=true goes on."
    return [f"{'; '.join(lines[:MANY])}{more}.{advice}"]


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several
