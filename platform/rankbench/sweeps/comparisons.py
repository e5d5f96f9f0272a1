"""Comparisons of the final runs of a sweep: comparisons.json, with one entry per dataset, metric and pair of models.

If a model has several runs, a user's values on one split are averaged over the seeds of the method, and these means over the
splits on which the user is measured. The tests then use one value per user and model, so that a user of five splits counts
once. The means are over all finished runs of a model; in the comparisons, splits on which a model has no finished run are left
out for all models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from rankbench.data.cards import Card
from rankbench.evaluation.summary import Interval
from rankbench.evaluation.user_tables import UserValues, values_of
from rankbench.judge.compare import Comparison, Effort, OtherGroups, compare, user_means
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import ComparisonsFile, PooledMean, StoredSweep
from rankbench.tracking.record import DatasetInfo, RunRecord, read_per_user

Runs = dict[str, dict[int, list[RunRecord]]]  # model → split seed → its runs, one per seed


def columns_of(spec: ExperimentSpec, datasets: Iterable[DatasetInfo | Card]) -> tuple[str, ...]:
    """The metrics of the table."""
    recalls = {each.recall for each in datasets} | ({spec.published.recall} if spec.published else set())
    return with_both_recalls(spec.report_metrics) if "open" in recalls else spec.report_metrics


def compare_models(
    finals: list[RunRecord],
    folder: Path,
    spec: ExperimentSpec,
    metrics: tuple[str, ...] = (),
    on_progress: Callable[[float, float], None] = lambda done, share: None,
) -> ComparisonsFile:
    arms = [arm.label for arm in spec.arms]
    in_order = sorted(finals, key=lambda record: arms.index(record.label) if not record.lists else len(arms))
    columns = metrics or columns_of(spec, (record.dataset for record in finals))
    every_pair = spec.final.pairs == "all"
    return compare_finals(in_order, folder / "records", columns, spec.final.seeds[0], every_pair, on_progress)


def comparisons(stored: StoredSweep, metrics: tuple[str, ...] = ()) -> ComparisonsFile:
    """The content of comparisons.json; computed if `metrics` are not those of the experiment's table, or if foreign lists that
    have these metrics are not in it.
    """
    foreign: list[RunRecord] = []
    if stored.compared is not None:
        wanted, known = metrics or stored.compared.metrics, {(each.dataset, each.model) for each in stored.compared.models}
        foreign = [each for each in stored.foreign if {*wanted} <= {*each.metrics}]
        if wanted == stored.compared.metrics and known >= {(each.dataset.name, each.arm) for each in foreign}:
            return stored.compared
    finals = [stored.records[name] for row in stored.rows for name in row.final if name in stored.records]
    return compare_models([*finals, *foreign], stored.folder, stored.about.experiment, metrics)


def with_both_recalls(metrics: Iterable[str]) -> tuple[str, ...]:
    """`metrics` with recall_capped@k after every recall@k, for papers that leave open which one they mean."""
    both = [(name, name.replace("recall@", "recall_capped@")) if name.startswith("recall@") else (name,) for name in metrics]
    return tuple(dict.fromkeys(name for names in both for name in names))


def compare_finals(
    finals: Iterable[RunRecord],
    records: Path,
    metrics: Sequence[str],
    seed: int,
    every_pair: bool = True,
    on_progress: Callable[[float, float], None] = lambda done, share: None,
) -> ComparisonsFile:
    """Means and paired comparisons of the finished runs in `finals`, whose per-user metrics are in the folder `records`.

    `every_pair`: as in `judge.compare.compare`. `on_progress` is called with the number of comparisons that are done, one
    per dataset and metric, and with the share of the work. Metrics without per-user values, such as coverage, have no entry.
    Raises DataError if a per-user table is missing.
    """
    by_dataset: dict[str, Runs] = {}
    for record in finals:
        if record.finished:
            by_model = by_dataset.setdefault(record.dataset.name, {})
            by_model.setdefault(record.label, {}).setdefault(record.dataset.split_seed, []).append(record)
    models, pairs, neighbours = [], list[Comparison](), list[Comparison]()
    efforts = {dataset: _effort(runs, every_pair) for dataset, runs in by_dataset.items()}
    number, done, whole = 0, 0.0, sum(efforts.values()) * len(metrics)
    for dataset, runs in by_dataset.items():
        common = [split for split in next(iter(runs.values())) if all(split in by_split for by_split in runs.values())]
        for metric, samples in _samples(runs, records, metrics).items():
            shared = {model: {split: by_split[split] for split in common} for model, by_split in samples.items()}
            every = _pooled(samples)
            # Models that have no split in common need not have users in common either.

            def progress(share: float, number: int = number, done: float = done, effort: float = efforts[dataset]) -> None:
                on_progress(number + share, (done + share * effort) / whole)

            compared = None
            if common:
                with suppress(OtherGroups):  # such a metric is shown, and not compared
                    compared = compare(
                        _pooled(shared), dataset=dataset, metric=metric, seed=seed, every_pair=every_pair, on_progress=progress
                    )
            for model, members in runs.items():
                if compared is None or len(members) > len(common):  # it has runs that are in no comparison
                    mean = compare({model: every[model]}, seed=seed).means[model]
                else:
                    mean = compared.means[model]
                models.append(_model(dataset, metric, model, members, mean, compared.best if compared else ""))
            for found, kept in ((compared.pairs, pairs), (compared.neighbours, neighbours)) if compared else ():
                for pair in found:
                    by_split = _by_split(shared[pair.model], shared[pair.against])
                    kept.append(replace(pair, by_split=by_split))
            number, done = number + 1, done + efforts[dataset]
    return ComparisonsFile(
        metrics=tuple(metrics), seed=seed, models=tuple(models), comparisons=tuple(pairs), neighbours=tuple(neighbours)
    )


def _effort(runs: Runs, every_pair: bool) -> float:
    """Seconds that the comparison of a dataset takes in one metric, if the others are measured in the same unit."""
    users = [record.users.get("measured", 1) for by_split in runs.values() for each in by_split.values() for record in each]
    return Effort.of(len(runs), max(users), every_pair, 1).seconds


def _pooled(samples: Mapping[str, Mapping[int, UserValues]]) -> dict[str, UserValues]:
    """Model → one value per user, the mean over the splits."""
    return {model: user_means(list(by_split.values())) for model, by_split in samples.items()}


def _samples(runs: Runs, records: Path, metrics: Sequence[str]) -> dict[str, dict[str, dict[int, UserValues]]]:
    """Metric → model → split seed → one value per user, the mean over the seeds."""
    result: dict[str, dict[str, dict[int, UserValues]]] = {}
    for model, by_split in runs.items():
        for split, members in by_split.items():
            tables = [read_per_user(records / record.id) for record in members]
            for metric in (name for name in metrics if name in tables[0].column_names):
                values = user_means([values_of(table, metric) for table in tables])
                result.setdefault(metric, {}).setdefault(model, {})[split] = values
    return result


def _model(
    dataset: str, metric: str, model: str, by_split: dict[int, list[RunRecord]], mean: Interval, best: str
) -> PooledMean:
    """The mean over users with its interval, and `std` over the runs if there are several."""
    runs = [record for members in by_split.values() for record in members]
    means = [record.metrics[metric].mean for record in runs]
    return PooledMean(
        dataset=dataset,
        metric=metric,
        model=model,
        **asdict(mean),
        std=float(np.std(means, ddof=1)) if len(means) > 1 else None,
        best=model == best,
        seeds=tuple(dict.fromkeys(record.seed for record in runs)),
        split_seeds=tuple(by_split),
    )


def _by_split(one: dict[int, UserValues], other: dict[int, UserValues]) -> dict[str, float]:
    if len(one) < 2:
        return {}
    return {str(split): float(np.mean(values)) - float(np.mean(other[split].values)) for split, (_, values, _) in one.items()}
