"""One run, read top to bottom: load, split, fit, rank, measure, record.

A job fits one or more configurations on the same data. Those that share an inverse are fitted and ranked together; those with
the same ranking are ranked once. The commands, the Python interface and the trials of a sweep all use this module.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from functools import partial, singledispatch

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from rankbench.core import threads
from rankbench.core.code import package_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import NumericalError, require
from rankbench.core.memory import memory_errors_are_clear
from rankbench.core.plugins import guarded
from rankbench.core.progress import Progress
from rankbench.data.prepare import Dataset, prepare
from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import counts_of_users, means_by_history, rank_all
from rankbench.evaluation.metrics import measure
from rankbench.evaluation.ranking import Ranking
from rankbench.evaluation.summary import summarise
from rankbench.experiment.by_tiles import rank_by_tiles
from rankbench.experiment.estimate import Size, evaluations_every
from rankbench.experiment.execution import Execution, Limit, ignore_progress
from rankbench.experiment.fit import Fitted, fit_stepwise
from rankbench.experiment.fit_warnings import rate_is_named
from rankbench.experiment.job import Job, MethodConfig
from rankbench.experiment.outcome import Outcome, base_record, describe, now
from rankbench.experiment.watch import Curve, ValidationSet, ranked, valid_users
from rankbench.fitting.drive import Row, Validation, result_of
from rankbench.fitting.executors import ThreadMap
from rankbench.fitting.method import Iterative
from rankbench.solvers.tiled.recommender import TiledLinearRecommender
from rankbench.tracking.energy import EnergyMeter
from rankbench.tracking.environment import code_revision, peak_memory, reset_peak_memory
from rankbench.tracking.record import TIED, Measured, RunRecord, per_user_table

OnBegin = Callable[[RunRecord], object]


def run(
    job: Job,
    environment: Environment,
    execution: Execution | None = None,
    progress: Progress = ignore_progress,
    on_begin: OnBegin = ignore_progress,
    on_curve: Callable[[list[Row]], None] = ignore_progress,
) -> list[Outcome]:
    """Run a job and return one Outcome per configuration, in order. `progress(phase, done, total)` is called throughout.

    `on_begin` as in `run_stepwise`, `on_curve` as in `load_and_fit`. All errors are passed on, except that failed allocations
    become a StorageError.
    """
    return result_of(run_stepwise(job, environment, execution or Execution(), progress, on_begin), on_curve)


@singledispatch
def run_stepwise(
    job: Job,
    environment: Environment,
    execution: Execution,
    progress: Progress = ignore_progress,
    on_begin: OnBegin = ignore_progress,
) -> Generator[list[Row] | Limit, None, list[Outcome]]:
    """Like `run`, but yield the curve so far after each iteration of an iterative method. Other kinds of jobs register how they
    are run, as an entry of a leaderboard does; they may yield limits of time, too.

    `on_begin` is called before the fit, with what is known then of the record of the first configuration.
    """
    started_at, seconds = now(), dict[str, float]()
    code_revision(), package_fingerprint()  # asked now, because another revision may be checked out before the fit ends
    reset_peak_memory()
    named = rate_is_named(job.configs[0].flat)
    with memory_errors_are_clear(job.title), guarded(job.title), threads.pinned(execution.n_threads), named:
        with _timed(seconds, "load"):
            dataset = prepare(job.card, environment, progress)
            X = dataset.split.fit_matrix(job.fit_on)
            holdout = dataset.split.holdout(job.measure_on, job.fit_on)
            require_fold_in(job.configs, holdout, X, job.card.name)
        if execution.spill:
            own = dataclasses.replace(execution.spill, folder=execution.spill.folder / job.run_id(job.configs[0]))
            execution = dataclasses.replace(execution, spill=own)
        on_begin(base_record(job, job.configs[0], describe(dataset), started_at))
        energy = EnergyMeter(execution.device)
        with _timed(seconds, "fit"):
            fitted = yield from _fit(job, dataset, X, execution, progress, holdout, (dataset.fingerprint, job.fit_on))
        seconds["fit"] += fitted.earlier - fitted.paused
        # Nobody has measured those of the iterations before a checkpoint.
        here = isinstance(execution.context.executor, ThreadMap)
        measured_whole = execution.workers == 1 and here and not fitted.earlier
        joules = energy.stop() if measured_whole else None
        leaders = _first_of_each_identity(job.configs)
        unique = sorted(set(leaders))
        with _timed(seconds, "rank"):
            rankings = dict(zip(unique, _rank(job, fitted, unique, holdout, execution, progress), strict=True))
        with _timed(seconds, "measure"):
            measured = {i: measure(ranking, holdout, job.metrics, X) for i, ranking in rankings.items()}
            summaries = {i: summarise(per_user, job.seed) for i, per_user in measured.items()}
            groups = dict(zip(measured, means_by_history(holdout, [*measured.values()], job.metrics), strict=True))

    users, info = counts_of_users(holdout), describe(dataset)
    outcomes = []
    for position, config in enumerate(job.configs):
        leader = leaders[position]
        record = dataclasses.replace(
            base_record(job, config, info, started_at),
            metrics={name: Measured(each.mean, each.low, each.high) for name, each in summaries[leader].items()},
            users=users | ({TIED: tied} if (tied := rankings[leader].n_tied) else {}),
            groups=groups[leader],
            seconds={name: round(value, 4) for name, value in seconds.items()},
            curve=fitted.curve,
            iterations=fitted.iterations,
            fit_shared_by=len(job.configs),
            tiles=fitted.tiles,
            same_as=job.run_id(job.configs[leader]) if leader != position else None,
            peak_memory_bytes=peak_memory(),
            joules=joules,
            threads=execution.n_threads,
            workers=execution.workers,
            device="cpu" if fitted.tiles else execution.device,
        )
        _refuse_non_finite(record)
        ids = dataset.users.take(pa.array(measured[leader].users))
        model = None if fitted.tiles else fitted.models[position]
        outcomes.append(Outcome(record, per_user_table(ids, measured[leader].columns), model))
    return outcomes


def load_and_fit(
    job: Job,
    environment: Environment,
    execution: Execution | None = None,
    progress: Progress = ignore_progress,
    on_curve: Callable[[list[Row]], None] = ignore_progress,
) -> tuple[Dataset, Fitted]:
    """Return the prepared dataset and the fitted models of a job, without ranking and measuring them. `on_curve` is called with
    the curve so far after each iteration of an iterative method.
    """
    execution, named = execution or Execution(), rate_is_named(job.configs[0].flat)
    with memory_errors_are_clear(job.title), guarded(job.title), threads.pinned(execution.n_threads), named:
        dataset = prepare(job.card, environment, progress)
        X = dataset.split.fit_matrix(job.fit_on)
        return dataset, result_of(_fit(job, dataset, X, execution, progress), on_curve)


def _fit(
    job: Job,
    dataset: Dataset,
    X: sp.csr_array,
    execution: Execution,
    progress: Progress,
    holdout: Holdout | None = None,
    data: Hashable = None,
) -> Generator[list[Row], None, Fitted]:
    """Fit the job's configurations on X; measure a curve on `holdout` if the job asks for one. `data`: as in `fit_stepwise`."""
    first, validation = job.configs[0], None
    if first.stopping and job.fit_on == "train":
        valid = dataset.split.holdout("valid", "train")
        require_fold_in(job.configs, valid, X, dataset.name)
        measure = ValidationSet(valid, job.seed, execution.device, valid_users(first))
        validation = Validation(measure, first.stopping, evaluations_every(job, Size.of(dataset)))
    curve = None
    if job.curve and holdout is not None and isinstance(first.spec, Iterative):
        curve = Curve(job, holdout, first.spec.limit(first.params), execution.device)
    execution = _with_own_checkpoints(job, dataset, execution)
    return (yield from fit_stepwise(job.configs, X, job.dtype, job.seed, execution, progress, validation, curve, data))


def _rank(
    job: Job, fitted: Fitted, unique: list[int], holdout: Holdout, execution: Execution, progress: Progress
) -> list[Ranking]:
    models, on_progress = [fitted.models[position] for position in unique], partial(progress, "rank")
    tiled = [model for model in models if isinstance(model, TiledLinearRecommender)]
    if tiled and execution.spill:
        spill, executor = execution.spill, execution.context.executor
        return rank_all(
            lambda warm, _: rank_by_tiles(job, tiled, warm, spill, executor, on_progress),
            tiled, holdout, job.metrics.k, job.metrics.auc,
        )  # fmt: skip
    return ranked(models, holdout, job.metrics.k, job.metrics.auc, on_progress, execution.device)


def _with_own_checkpoints(job: Job, dataset: Dataset, execution: Execution) -> Execution:
    """Let checkpoints say what they are of, so that no other fit goes on from them."""
    if execution.checkpoints is None:
        return execution
    config = job.configs[0]
    params = {name: value for name, value in config.flat.items() if name in config.used}
    of = {"method": config.method, **params, "seed": job.seed, "dtype": job.dtype, "fit_on": job.fit_on}
    of["data"] = f"{dataset.name} {dataset.fingerprint}"
    of["device"] = execution.device.partition(":")[0]  # the moments of an optimiser have another layout on another device
    return dataclasses.replace(execution, checkpoints=dataclasses.replace(execution.checkpoints, of=of))


def require_fold_in(configs: tuple[MethodConfig, ...], holdout: Holdout, X: sp.csr_array, name: str) -> None:
    """Raise ConfigError if a method that only scores fitted users would be measured on others, or nobody is left to measure."""
    if not len(holdout.users):
        return
    require(
        len(holdout.rows) > 0 or not holdout.cold.any(),
        f"{name}: none of the {holdout.cold.sum():,} users to measure has a history; split the data more evenly, "
        "or set split.cold_users to popularity",
    )
    held_out = int(np.count_nonzero(np.diff(X.indptr)[holdout.users] == 0))
    for each in configs:
        require(
            each.spec.scores_new_users(each.params) or held_out < len(holdout.users),
            f"{each.method} scores only users it was trained on, and {name} measures users who were held out; "
            "use a method with fold-in, or a protocol that trains on every user",
        )


def _first_of_each_identity(configs: tuple[MethodConfig, ...]) -> list[int]:
    """Return for every configuration the position of the first one with the same ranking."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(each.identity, position) for position, each in enumerate(configs)]


def _refuse_non_finite(record: RunRecord) -> None:
    for name, value in record.metrics.items():
        if not np.isfinite(value.mean):
            raise NumericalError(f"{record.method}: {name} is {value.mean} with {record.params}")


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - start
