"""Sentences on how a sweep differs from the papers' protocol: data, settings, seeds, and what was not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankbench.core.data_notes import data_notes
from rankbench.judge.printing import listed
from rankbench.reports.rows import ReportRow
from rankbench.schema.experiment import ArmSpec, ExperimentSpec, NotRun
from rankbench.tracking.record import DatasetInfo, RunRecord, about_cold_users


def data_deviations(finals: Sequence[RunRecord], metric: str | None = None) -> tuple[str, ...]:
    """Return deviations of the measured datasets: counts, users without a history with their mean of `metric`, lists that end
    between equal scores, stand-ins, and a recall that the papers leave open.
    """
    lines = []
    for name, data in _datasets(finals).items():
        lines += [f"{name}: {line}" for line in data.differences]
        lines += [f"{name}: {sentence}" for sentence in data_notes(data.counts)]
        if sentence := about_cold_users([each for each in finals if each.dataset.name == name], metric):
            lines.append(f"{name}: {sentence}")
        tied = {each.label: each.tie_warning for each in finals if each.dataset.name == name and each.tie_warning}
        lines += [f"{name}: {arm}: {sentence}" for arm, sentence in tied.items()]
        if data.raw_gone:
            lines.append(f"{name}: {data.raw_gone}")
        if data.stand_in:
            lines.append(
                f"{name} is a stand-in, so that published numbers, which belong to other data, are left out: {data.stand_in}"
            )
        elif data.recall == "open":
            lines.append(f"{name}: its papers do not say which recall they mean, so the published value is shown beside both")
    return tuple(lines)


def interval_notes(finals: Iterable[RunRecord], metrics: Sequence[str]) -> list[str]:
    """Return one sentence per dataset and reason why intervals of the metrics tell nothing, with the arms that it is about."""
    arms: dict[tuple[str, str], dict[str, None]] = {}
    for record in finals:
        if doubt := record.interval_warning(metrics):
            arms.setdefault((record.dataset.name, doubt), {})[record.label] = None
    return [f"{dataset}: {doubt} ({listed(who)})" for (dataset, doubt), who in arms.items()]


def mixed_conditions(records: Iterable[RunRecord], finals: Iterable[RunRecord]) -> list[str]:
    """Return a sentence if the runs are of several versions of the code, and one if the final runs had several processors or
    versions of libraries, whose seconds say nothing of the models.
    """
    said = []
    codes = {code for record in records if record.finished and (code := record.environment.get("code"))}
    if len(codes) > 1:
        said.append(
            f"the runs are of {len(codes)} versions of rankbench's code, so a difference of models may be one of the code"
        )
    machines: dict[str, dict[str, None]] = {}
    for record in finals:
        about, packages = record.environment.get("machine", {}), record.environment.get("packages", {})
        versions = [f"{name} {packages[name]}" for name in ("torch", "numpy", "numba") if packages.get(name)]
        machines.setdefault(", ".join([str(about.get("cpu", "")), *versions]), {})[record.label] = None
    if len(machines) > 1:
        shown = "; ".join(f"{what}: {listed(who)}" for what, who in machines.items())
        said.append(f"seconds are those of different machines or versions, and compare no models: {shown}")
    return said


def stand_ins(finals: Iterable[RunRecord]) -> tuple[str, ...]:
    """Return the names of the datasets that are stand-ins."""
    return tuple(name for name, data in _datasets(finals).items() if data.stand_in)


def run_deviations(experiment: ExperimentSpec, rows: Sequence[ReportRow], finals: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return deviations of the runs: cold items, fitted parts, settings that were not searched, seeds, and missing arms."""
    lines = []
    for name, data in _datasets(finals).items():
        if cold := data.counts.get("cold_test_items"):
            lines.append(f"{name}: {cold:,} test items do not occur in the fitted data; they are ranked with the others")
    if (fit_on := experiment.final.fit_on) != "auto":
        lines.append(f"the final models are fitted on {fit_on}, as set in the experiment and not by the protocol of the split")
    measured = [row for row in rows if not row.missing]
    lines += protocol_deviations(experiment, measured)
    given = dict.fromkeys(row.arm for row in measured if row.stated and row.chosen_of < 2)
    if measured and len(given) == len({row.arm for row in measured}):
        lines.append("no setting was searched: the experiment file gives each")
    elif given:
        lines.append(f"given by the experiment file and not searched: {listed(given)}")
    if measured:
        lines.append(_seeds(measured))
    for what in ("not run", "failed"):
        if names := dict.fromkeys(f"{row.arm} on {row.dataset}" for row in rows if row.missing == what and row.method):
            lines.append(f"{what}: {listed(names)}")
    return tuple(lines)


def stated_protocol(experiment: ExperimentSpec, arm: ArmSpec) -> dict[str, Any]:
    """The parameters with which the paper trains an arm, as far as it says so."""
    return {name: value for name, value in (experiment.protocol.params | arm.protocol).items() if value is not None}


def protocol_deviations(experiment: ExperimentSpec, measured: Sequence[ReportRow]) -> list[str]:
    """Return how the runs differ from the `protocol` of the experiment: one sentence per parameter and pair of values."""
    protocol, arms = experiment.protocol, {arm.label: arm for arm in experiment.arms}
    rows = [row for row in measured if row.arm in arms]
    settings = []
    for row in rows:
        arm = arms[row.arm]
        wanted = stated_protocol(experiment, arm)
        # The final fit of a search has the number of epochs that was best, and not the stated one.
        values = row.params | {name: value for name, value in arm.fixed.items() if name in row.params}
        could = {
            name for name in arm.searched if row.chosen_of > 1 and name in wanted and _within(wanted[name], arm.params[name])
        }
        settings.append((row.arm, wanted, {name: value for name, value in values.items() if name not in could}))
    lines = differing_params(settings)
    if protocol.trials is not None:
        fewer = dict.fromkeys(row.arm for row in rows if 0 < row.chosen_of < protocol.trials)
        tried = sorted({row.chosen_of for row in rows if row.arm in fewer})
        if fewer:
            counts = f"{tried[0]} to {tried[-1]}" if len(tried) > 1 else f"{tried[0]}"
            names = "all arms" if len(fewer) == len({row.arm for row in rows}) > 1 else listed(fewer)
            lines.append(f"{names}: {counts} settings tried, where the paper tries {protocol.trials}")
    return lines


def _within(value: Any, space: Mapping[str, Any]) -> bool:
    """Whether a search of `space` could choose the value."""
    ((kind, given),) = space.items()
    if kind in ("grid", "choice") or not isinstance(value, int | float):
        return value in given
    return given[0] <= value <= given[1] and not (kind == "randint" and value == given[1])


def differing_params(settings: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Return one sentence per parameter and pair of values that differ. `settings`: label of a row, the paper's parameters, and
    those that were used; a parameter that only one of them has is not compared, nor one that is left to the papers (auto).
    """
    differing: dict[tuple[str, str, str], dict[str, None]] = {}
    compared: dict[str, set[str]] = {}
    labels = {label for label, _, _ in settings}
    for label, wanted, values in settings:
        for name in (name for name in wanted if name in values):
            compared.setdefault(name, set()).add(label)
            if values[name] not in (wanted[name], "auto"):
                differing.setdefault((name, str(values[name]), str(wanted[name])), {})[label] = None
    lines = []
    for (name, value, expected), who in differing.items():
        everyone = len(compared[name]) > 1 and set(who) == compared[name]
        every = "all arms" if compared[name] == labels else "all arms with this parameter"
        lines.append(f"{every if everyone else listed(who)}: {name} {value}, where the paper has {expected}")
    return lines


def left_out(rows: Iterable[NotRun]) -> list[str]:
    """Return one sentence per reason why rows of an experiment file were not run."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.why, []).append(row.name)
    return [f"not run: {'; '.join(names)}: {why}" for why, names in by_reason.items()]


def _seeds(measured: Sequence[ReportRow]) -> str:
    seeds = dict.fromkeys(seed for row in measured for seed in row.seeds)
    splits = dict.fromkeys(seed for row in measured for seed in row.split_seeds)
    text = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"
    text += f", {'splits' if len(splits) > 1 else 'split'} of seed {', '.join(map(str, splits))}"
    several = any(len(row.seeds) * len(row.split_seeds) > 1 for row in measured)
    return text if several else f"{text}; one run per row, so there is no spread over seeds"


def _datasets(finals: Iterable[RunRecord]) -> dict[str, DatasetInfo]:
    """Return name → dataset, as the first record of each dataset describes it."""
    by_name: dict[str, DatasetInfo] = {}
    for record in finals:
        by_name.setdefault(record.dataset.name, record.dataset)
    return by_name
