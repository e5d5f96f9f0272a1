"""Time to target: the training that each model needs until it is nearly as good as the best one becomes.

The target is a share of the best final value of any model on the same dataset and split, read from the curves: every run is
followed on the same users of a split. The final value of a run is that of the model that was kept, which is the last one
unless training chose itself when to end. A run reaches the target at the first point of its curve that is not below it; of
several runs of a model the median counts, one that never gets there as one that takes for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from statistics import fmean, median

from rankbench.tracking.record import RunRecord

SHARES = (0.95, 0.99, 0.995)


@dataclass(frozen=True)
class Reached:
    """One arm on one dataset. `final`: mean over its `runs`. `seconds`, `iterations`: one a share of SHARES, of training
    alone; None: not reached. `targets`: the values to reach, means over the splits.
    """

    dataset: str
    arm: str
    metric: str
    runs: int
    final: float
    targets: tuple[float, ...]
    seconds: tuple[float | None, ...]
    iterations: tuple[float | None, ...]


def time_to_target(records: Sequence[RunRecord], metric: str, arms: Sequence[str] = ()) -> tuple[Reached, ...]:
    """One entry a dataset and arm that has curves of `metric`, in the order of `arms`, those that it leaves out last."""
    followed = [record for record in records if any(metric in row for row in record.curve)]
    best: dict[tuple[str, int], float] = {}
    by_model: dict[tuple[str, str], list[RunRecord]] = {}
    for record in followed:
        users = record.dataset.name, record.dataset.split_seed
        best[users] = max(best.get(users, float("-inf")), final_value(record, metric))
        by_model.setdefault((record.dataset.name, record.arm or record.method), []).append(record)
    place = {arm: position for position, arm in enumerate(arms)}
    datasets = list(dict.fromkeys(dataset for dataset, _ in by_model))
    order = sorted(by_model, key=lambda key: (datasets.index(key[0]), place.get(key[1], len(place))))
    result = []
    for dataset, arm in order:
        runs = by_model[dataset, arm]
        tops = [best[dataset, run.dataset.split_seed] for run in runs]
        points = [[_first(run, metric, share * top) for run, top in zip(runs, tops, strict=True)] for share in SHARES]
        result.append(
            Reached(
                dataset,
                arm,
                metric,
                len(runs),
                fmean(final_value(run, metric) for run in runs),
                tuple(share * fmean(top for (name, _), top in best.items() if name == dataset) for share in SHARES),
                tuple(_median([seconds for seconds, _ in found]) for found in points),
                tuple(_median([iteration for _, iteration in found]) for found in points),
            )
        )
    return tuple(result)


def final_value(record: RunRecord, metric: str) -> float:
    """Of the model that was kept, on the users of the curve; of the last one measured where the kept one was not."""
    points = {row["iteration"]: row[metric] for row in record.curve if metric in row}
    return points.get(record.iterations, list(points.values())[-1])


def target_columns(entries: Sequence[Reached]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of one dataset's entries."""
    header = ["model", f"final {entries[0].metric}"]
    for share, target in zip(SHARES, entries[0].targets, strict=True):
        header += [f"{100 * share:g} % ({target:.4f}), s", "iterations"]
    body = []
    for each in entries:
        line = [each.arm, f"{each.final:.4f}"]
        for seconds, iteration in zip(each.seconds, each.iterations, strict=True):
            line += ["not reached", ""] if seconds is None else [f"{seconds:.2f}", f"{iteration:g}"]
        body.append(line)
    return header, body


def _first(record: RunRecord, metric: str, target: float) -> tuple[float, float]:
    """Seconds and iteration of the first point that is not below `target`; infinite where there is none."""
    points = ((row["seconds"], row["iteration"]) for row in record.curve if row.get(metric, float("-inf")) >= target)
    return next(points, (float("inf"), float("inf")))


def _median(values: Sequence[float]) -> float | None:
    middle = median(values)
    return None if isinf(middle) else middle
