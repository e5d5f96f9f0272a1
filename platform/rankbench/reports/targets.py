"""Time to target: the training that each model needs until it is nearly as good as the best final model.

The target is a share of the best final value of any model on the same dataset and split, read from the curves, which follow
the same users of a split for every run. The final value of a run is that of the kept model, which is the last one unless early
stopping kept another. A run reaches the target at the first point of its curve that is not below it. The median of several
runs is reported, where a run that never reaches the target counts as infinitely long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from statistics import fmean, median

from rankbench.tracking.record import RunRecord

SHARES = (0.95, 0.99, 0.995)


@dataclass(frozen=True)
class Reached:
    """Time to target of one arm on one dataset. `final`: mean over its `runs`. `targets`: the values to reach, means over the
    splits. `seconds` and `iterations` of training have one entry per share in SHARES; None if the target was not reached.
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
    """Return one entry per dataset and arm with curves of `metric`, in the order of `arms`, other arms last."""
    followed = [record for record in records if any(metric in row for row in record.curve)]
    best: dict[tuple[str, int], float] = {}
    by_model: dict[tuple[str, str], list[RunRecord]] = {}
    for record in followed:
        split = record.dataset.name, record.dataset.split_seed
        best[split] = max(best.get(split, float("-inf")), final_value(record, metric))
        by_model.setdefault((record.dataset.name, record.label), []).append(record)
    places = {arm: place for place, arm in enumerate(arms)}
    datasets = list(dict.fromkeys(dataset for dataset, _ in by_model))
    order = sorted(by_model, key=lambda key: (datasets.index(key[0]), places.get(key[1], len(places))))
    return tuple(_reached(by_model[key], *key, metric, best) for key in order)


def _reached(runs: Sequence[RunRecord], dataset: str, arm: str, metric: str, best: Mapping[tuple[str, int], float]) -> Reached:
    """Return the entry of the runs of an arm. `best`: the best final value of each dataset and split seed."""
    tops = [best[dataset, run.dataset.split_seed] for run in runs]
    points = [[_first(run, metric, share * top) for run, top in zip(runs, tops, strict=True)] for share in SHARES]
    top = fmean(value for (name, _), value in best.items() if name == dataset)
    return Reached(
        dataset, arm, metric, len(runs), final=fmean(final_value(run, metric) for run in runs),
        targets=tuple(share * top for share in SHARES),
        seconds=tuple(_median([seconds for seconds, _ in reached]) for reached in points),
        iterations=tuple(_median([iteration for _, iteration in reached]) for reached in points),
    )  # fmt: skip


def final_value(record: RunRecord, metric: str) -> float:
    """Return the value of the kept model on the users of the curve, or of the last measured one if it was not measured."""
    points = {row["iteration"]: row[metric] for row in record.curve if metric in row}
    last = list(points.values())[-1]
    return last if record.iterations is None else points.get(record.iterations, last)


def target_columns(entries: Sequence[Reached]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the entries of one dataset."""
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
    """Return seconds and iteration of the first point that is not below `target`; infinity if there is none."""
    points = ((row["seconds"], row["iteration"]) for row in record.curve if row.get(metric, float("-inf")) >= target)
    return next(points, (float("inf"), float("inf")))


def _median(values: Sequence[float]) -> float | None:
    middle = median(values)
    return None if isinf(middle) else middle
