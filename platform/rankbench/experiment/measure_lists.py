"""Measure lists that another program made, by the same code as our own methods: rank, measure, record."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rankbench.core.errors import ConfigError, DataError, require, shown
from rankbench.core.names import checked_label
from rankbench.core.registry import plugins_behind
from rankbench.data.interactions import near_id, positions_of
from rankbench.data.lists import Lists
from rankbench.data.prepare import Dataset
from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import counts_of_users, means_by_history, rank_all
from rankbench.evaluation.lists import ListCounts, rank_lists
from rankbench.evaluation.metrics import MetricSet, measure
from rankbench.evaluation.ranking import Ranking
from rankbench.evaluation.summary import summarise
from rankbench.experiment.outcome import describe, now
from rankbench.experiment.run import require_fold_in
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.foreign_lists import MARK, METHOD, ForeignLists
from rankbench.tracking.record import Measured, RunRecord

MISSING = 0.5  # share of the measured users without a list, from which on the lists are probably of other users


def measure_lists(
    lists: Lists,
    dataset: Dataset,
    metrics: MetricSet,
    name: str,
    on: str = "test",
    fit_on: str | None = None,
    seed: int = 0,
    allow_missing: bool = False,
    seconds: float | None = None,
) -> tuple[RunRecord, dict[str, np.ndarray], pa.Array]:
    """Return the record of lists called `name`, and the columns of values of each user, with the users' ids. `seconds`: of the
    other program's fit on `fit_on`, as the user says.

    Raises DataError, with the row, for an item that the data do not have, and ConfigError for a part or a metric that lists
    cannot be measured on, and if nobody, or without `allow_missing` less than half of the measured users, have a list.
    """
    started_at, began = now(), time.perf_counter()
    require(seconds is None or math.isfinite(seconds), f"--seconds: expected a number, got {seconds}")
    require(on in ("test", "valid"), f"--on: expected test or valid, got {shown(on)}")
    fit_on = fit_on or (dataset.card.final_fit if on == "test" else "train")
    require(fit_on in ("train", "train+valid"), f"--fit-on: expected train or train+valid, got {shown(fit_on)}")
    require(on == "test" or fit_on == "train", "--fit-on: what was fitted on train+valid cannot be measured on valid")
    of_all = [each for each in metrics.names if MetricSet((each,)).auc]
    require(not of_all, f"--metrics: {', '.join(of_all)} needs the scores of all items, which lists do not have; leave it out")
    try:
        arm = f"{checked_label(name)} {MARK}"
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from None
    X, holdout = dataset.split.fit_matrix(fit_on), dataset.split.holdout(on, fit_on)
    require_fold_in((), holdout, X, dataset.name)
    ranking, counts, met = _ranked(lists, dataset, holdout, metrics.k, allow_missing)
    forbidden = f"{lists.name}: no list has an item of valid, as if these were fitted on it; measure them on test"
    require(on == "test" or met, forbidden)
    per_user = measure(ranking, holdout, metrics, X)
    content = [lists.sha256, name, dataset.card.content_key(), dataset.fingerprint, fit_on, on, metrics.names, seed]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:10]
    card, word = dataset.card, re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "unnamed"
    behind = plugins_behind(each.partition("@")[0] for each in [*metrics.names, card.read.format, card.split.protocol])
    record = RunRecord(
        id=f"run-{dataset.name}-{METHOD}-{word}-{digest}",
        method=METHOD,
        params={},
        dataset=describe(dataset),
        fit_on=fit_on,
        measured_on=on,
        seed=seed,
        dtype="float32",
        arm=arm,
        metrics={name: Measured(each.mean, each.low, each.high) for name, each in summarise(per_user, seed).items()},
        users=counts_of_users(holdout),
        groups=means_by_history(holdout, [per_user], metrics)[0],
        seconds={"fit": seconds} if seconds is not None else {},
        lists=ForeignLists(
            lists.name, lists.sha256, len(lists.order), lists.by, metrics.k, seconds is not None, **vars(counts)
        ),
        environment=describe_environment(behind),
        started_at=started_at,
    )
    record = replace(record, seconds=record.seconds | {"measure": round(time.perf_counter() - began, 4)})
    return record, per_user.columns, dataset.users.take(pa.array(per_user.users))


def _ranked(lists: Lists, dataset: Dataset, holdout: Holdout, k: int, allow_missing: bool) -> tuple[Ranking, ListCounts, bool]:
    """The lists as a ranking, and whether any of them has a target. Users without a history are ranked by popularity, if the
    split says so for all methods.

    Raises the errors of `measure_lists`.
    """
    item = positions_of(lists.item, dataset.items)
    if len(unknown := np.flatnonzero(item < 0)):
        row, more = int(unknown[0]), f" (and {len(unknown) - 1:,} rows more)" if len(unknown) > 1 else ""
        name = lists.item[row].as_py()
        hint = f"{near_id(name, dataset.items)}{more}"
        raise DataError(f"{lists.locate(row)}: item {shown(name)} is not among the items of {dataset.name}{hint}")
    users = lists.user.dictionary_encode()
    code = positions_of(users.dictionary, dataset.users)
    code = np.where(code >= 0, code, len(dataset.users) + np.arange(len(code)))  # others have codes beyond those of the data
    told: list[tuple[ListCounts, bool]] = []

    def rank_rows(holdout: Holdout, rows: np.ndarray | None) -> list[Ranking]:
        ranking, counts = rank_lists(code[users.indices.to_numpy()], item, lists.order, holdout, k, rows)
        (hits,) = measure(ranking, holdout, MetricSet((f"hit@{k}",))).values.values()
        told.append((counts, bool(hits.any())))
        return [ranking]

    if holdout.cold_users == "popularity":
        nothing: Any = None  # no model scores these users
        (ranking,) = rank_all(rank_rows, [nothing], holdout, k)
        n_users = len(holdout.rows) - int(holdout.cold.sum())
    else:
        (ranking,), n_users = rank_rows(holdout, None), len(holdout.rows)
    ((counts, met),) = told
    if len(holdout.rows) > n_users:
        cold = np.isin(holdout.users[holdout.cold], code[users.indices.to_numpy()])
        unlike = counts.not_measured - int(np.count_nonzero(cold))
        counts = replace(counts, not_measured=unlike, by_popularity=len(cold))
    found = n_users - counts.without_list
    require(found > 0, f"{lists.name}: none of the {n_users:,} measured users has a list; are these the raw ids?")
    few = f"{lists.name}: only {found:,} of the {n_users:,} measured users have a list"
    require(allow_missing or found >= MISSING * n_users, f"{few}; --allow-missing counts the others as 0")
    return ranking, counts, met
