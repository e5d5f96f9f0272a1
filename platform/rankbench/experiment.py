"""One run, read top to bottom: load, split, fit, rank, measure, record.

A job fits one or more settings on the same data. Settings that share an inverse are fitted and ranked together;
settings with the same ranking are ranked once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from rankbench import threads
from rankbench.checkpoint import Checkpoints
from rankbench.config import parameters
from rankbench.data.blocks import gram
from rankbench.data.cards import Card
from rankbench.data.kept_gram import gram_of
from rankbench.data.prepare import Dataset, prepare
from rankbench.data.splits import Holdout
from rankbench.errors import ConfigError, NumericalError, RankbenchError, StorageError, require
from rankbench.evaluation.columns import rank_by_columns, rank_by_columns_on
from rankbench.evaluation.metrics import MetricSet, measure, metric_set
from rankbench.evaluation.ranking import Ranking, rank
from rankbench.evaluation.summary import summarise
from rankbench.fitting import Fitting, Step
from rankbench.mapping import BlockMap, Flow, ThreadMap
from rankbench.memory import Spill, dense_bytes, memory_errors_are_clear
from rankbench.methods import registered
from rankbench.recommender import Recommender
from rankbench.rng import stream
from rankbench.settings import Settings
from rankbench.solvers.linear import fit_shared
from rankbench.solvers.spec import Solver
from rankbench.solvers.tiled.fit import fit_tiled
from rankbench.tracking.environment import environment, peak_memory, reset_peak_memory
from rankbench.tracking.record import RunRecord, per_user_table

Progress = Callable[[str, int, int | None], None]
OnLook = Callable[[list[dict[str, float]]], None]  # gets the curve so far, whose last row is the look

CURVE = ("recall", "ndcg")  # what a convergence curve shows beside the loss
CURVE_USERS = 2000
COLUMNS = 512 << 20  # bytes of a matrix's columns that a worker of a cluster holds
VALID_USERS = 10_000  # whom a fit that stops early is watched on, at most


@dataclass(frozen=True)
class Setting:
    """A method with its parameters checked; `arm` is the label of its row in a table."""

    method: str
    params: Any
    arm: str | None = None

    @property
    def solver(self) -> Solver:
        return registered().get(self.method)

    @property
    def share_key(self) -> Hashable:
        return self.solver.share_key(self.params)

    @property
    def identity(self) -> Hashable:
        return self.solver.identity_of(self.params)

    @property
    def resolved(self) -> dict[str, Any]:
        return dataclasses.asdict(self.params)


def setting(method: str, values: dict[str, Any], where: str = "", arm: str | None = None) -> Setting:
    """Raises ConfigError for an unknown method or parameter, with the nearest name, and for values out of range."""
    try:
        solver = registered().get(method)
    except ConfigError as error:
        raise ConfigError(f"{where.removesuffix('.params')}: {error}" if where else str(error)) from None
    return Setting(method, parameters(solver.params, values, where or method), arm)


def stops_early(setting: Setting) -> bool:
    """Whether its fit looks at valid to know when to end."""
    return setting.solver.trained and setting.params.patience > 0


@dataclass(frozen=True)
class Job:
    """What to fit, on which part of which data, and what to measure. All settings must have one share key, or one identity.

    `curve`: measure every so many iterations, too, of a method that goes by iterations, on CURVE_USERS users; 0: never.
    """

    card: Card
    settings: tuple[Setting, ...]
    fit_on: str = "train+valid"
    measure_on: str = "test"
    metrics: MetricSet = field(default_factory=metric_set)
    dtype: str = "float32"
    seed: int = 0
    stage: str = "run"
    curve: int = 0

    def run_id(self, setting: Setting) -> str:
        """Named by content: the same setting on the same data, measured the same way, is the same run."""
        content = [
            setting.method, setting.arm, setting.resolved, self.card.content_key(), self.fit_on, self.measure_on,
            self.metrics.names, self.dtype, self.seed,
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:10]
        return f"{self.stage}-{self.card.name}-{setting.method}-{digest}"


@dataclass(frozen=True)
class Outcome:
    """A record with the per-user metrics and the model behind it; both are None for a failed run."""

    record: RunRecord
    per_user: pa.Table | None = None
    model: Recommender | None = None


def run(
    job: Job,
    settings: Settings,
    n_threads: int | None = None,
    progress: Progress = lambda *_: None,
    where: BlockMap | None = None,
    checkpoints: Checkpoints | None = None,
    on_look: OnLook = lambda curve: None,
    spill: Spill | None = None,
    device: str = "cpu",
) -> list[Outcome]:
    """One Outcome a setting, in order. Raises as the rooms do: nothing is caught here.

    `progress(phase, done, total)` is called throughout. A method that goes by iterations works on its blocks `where` it is
    told, by default in `n_threads` threads, and saves to `checkpoints`. `on_look` hears of each look at valid, and may take
    its time: it is no part of the fit. A closed form that does not fit, or is to be solved on a cluster, goes where `spill`
    says by tiles, and leaves no model. `device`: as in Fitting. MemoryError becomes StorageError.
    """
    n_threads = n_threads or threads.available_cpus()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    seconds: dict[str, float] = {}
    reset_peak_memory()
    with memory_errors_are_clear(f"{job.card.name}: {job.settings[0].method}"), threads.pinned(n_threads):
        with _timed(seconds, "load"):
            dataset = prepare(job.card, settings, progress)
            X = dataset.split.fit_matrix(job.fit_on)
            holdout = dataset.split.holdout(job.measure_on, job.fit_on)
            require_fold_in(job.settings, holdout, X, job.card.name)
            looks = job.fit_on == "train" and stops_early(job.settings[0])
            valid = dataset.split.holdout("valid", "train") if looks else None
        watch = _Watch(job, holdout, X, progress, on_look)
        look = Look(valid, job.seed) if valid else None
        fitting = Fitting(where or ThreadMap(n_threads), watch, checkpoints, watch.curve, look, device=device)
        leaders = _first_of_each_identity(job.settings)
        unique = sorted(set(leaders))
        flow = fitting.where.flow()
        if spill:
            spill = dataclasses.replace(spill, folder=spill.folder / job.run_id(job.settings[0]))
        outside = spill if goes_outside(job.settings[0], X.shape[1], job.dtype, spill, flow) else None
        with _timed(seconds, "fit"):
            data = (dataset.fingerprint, job.fit_on)
            models = fit(job.settings, X, job.dtype, job.seed, progress, fitting, data, outside)
        seconds["fit"] -= watch.seconds + (look.seconds if look else 0)
        tiles = models[0].C.tile if outside else None
        with _timed(seconds, "rank"):
            ranked = [models[position] for position in unique]
            told = partial(progress, "rank")
            if outside:
                found = _rank_by_tiles(job, ranked, holdout, outside, told, fitting.where)
                models = [None] * len(models)
            else:
                found = rank(ranked, holdout, job.metrics.k, job.metrics.auc, told)
        rankings = dict(zip(unique, found, strict=True))
        with _timed(seconds, "measure"):
            counts = np.bincount(X.indices, minlength=X.shape[1])
            measured = {i: measure(ranking, holdout.target, counts, job.metrics) for i, ranking in rankings.items()}
            summaries = {i: summarise(per_user, job.seed) for i, per_user in measured.items()}

    about = describe(dataset)
    n_ranked = len(rankings[unique[0]].rows)
    outcomes = []
    for position, setting in enumerate(job.settings):
        leader = leaders[position]
        record = RunRecord(
            id=job.run_id(setting),
            method=setting.method,
            params=setting.resolved,
            dataset=about,
            fit_on=job.fit_on,
            measured_on=job.measure_on,
            seed=job.seed,
            dtype=job.dtype,
            arm=setting.arm,
            stage=job.stage,
            metrics={name: dataclasses.asdict(summary) for name, summary in summaries[leader].items()},
            users={"measured": n_ranked, "without_targets": holdout.target.shape[0] - n_ranked},
            seconds={name: round(value, 4) for name, value in seconds.items()},
            curve=watch.curve,
            iterations=fitting.kept[0] if fitting.kept else None,
            fit_shared_by=len(job.settings),
            tiles=tiles,
            same_as=job.run_id(job.settings[leader]) if leader != position else None,
            peak_memory_bytes=peak_memory(),
            threads=n_threads,
            device="cpu" if outside else device,
            environment=environment(),
            started_at=started,
        )
        _refuse_non_finite(record)
        per_user = measured[leader]
        ids = dataset.users.take(pa.array(per_user.users))
        outcomes.append(Outcome(record, per_user_table(ids, per_user.values), models[position]))
    return outcomes


def fit(
    settings: tuple[Setting, ...],
    X: sp.csr_array,
    dtype: str,
    seed: int,
    progress: Progress = lambda *_: None,
    fitting: Fitting = Fitting(),
    data: Hashable = None,
    outside: Spill | None = None,
) -> list[Recommender]:
    """One model a setting, fitted on X (n_users, n_items). Settings with a share key are fitted from one Gram, others only
    come together where they are one model. `data` names what X holds, for fits that follow one another on the same. What
    `goes_outside` is fitted by tiles in the folder of `outside`.
    """
    first = settings[0]
    if first.solver.iterate:
        return [first.solver.iterate(X, first.params, seed, np.dtype(dtype).type, fitting)] * len(settings)
    if first.share_key is None:
        return [first.solver.fit(X, first.params, seed)] * len(settings)
    members = [(each.solver, each.params) for each in settings]
    number = np.dtype(dtype).type
    if outside:
        return _fit_by_tiles(members, X, number, outside, partial(progress, "fit by tiles"), fitting.where.flow())
    made = gram(X, number) if data is None else gram_of(data, X, number)
    return list(fit_shared(made, members, lambda done, total: progress("fit", done, total), fitting.device))


def goes_outside(setting: Setting, n_items: int, dtype: str, spill: Spill | None, flow: Flow | None) -> bool:
    """Whether its matrix is solved by tiles in a file: it does not fit, or others work on it. Never where it has none."""
    if spill is None or setting.share_key is None:
        return False
    return flow is not None or not spill.fits(n_items, np.dtype(dtype).itemsize)


def _fit_by_tiles(
    members: list[tuple[Solver, Any]],
    X: sp.csr_array,
    dtype: type,
    outside: Spill,
    told: Callable[[int, int], None],
    flow: Flow | None,
) -> list[Recommender]:
    memory = outside.left()
    try:
        return list(fit_tiled(X, members, outside.folder, memory, dtype, outside.resume, told, flow))
    except NumericalError:
        shutil.rmtree(outside.folder, ignore_errors=True)
        raise
    except StorageError as error:
        needed = dense_bytes(X.shape[1], np.dtype(dtype).itemsize) / 1e9
        what = f"the item-item matrix of {X.shape[1]:,} items needs {needed:.1f} GB of memory, {memory / 1e9:.1f} GB are free"
        raise StorageError(f"{what}; by tiles in a file: {error}") from None


def _rank_by_tiles(
    job: Job,
    models: list[Recommender],
    holdout: Holdout,
    outside: Spill,
    told: Callable[[int, int], None],
    where: BlockMap,
) -> list[Ranking]:
    """And remove the tiles: there is no more use for them, and none for those of a model whose scores are no numbers."""
    tile, n_items = models[0].C.tile, models[0].n_items
    try:
        if where.flow() is None:
            found = rank_by_columns(models, holdout, job.metrics.k, tile, job.metrics.auc, told)
        else:
            width = max(1, min(tile, COLUMNS // (n_items * models[0].dtype.itemsize)))
            found = rank_by_columns_on(where, models, holdout, job.metrics.k, width, job.metrics.auc, told)
    except NumericalError:
        shutil.rmtree(outside.folder, ignore_errors=True)
        raise
    shutil.rmtree(outside.folder, ignore_errors=True)
    return found


def require_fold_in(settings: tuple[Setting, ...], holdout: Holdout, X: sp.csr_array, name: str) -> None:
    """Raises ConfigError where a method that scores fitted users alone would be measured on others."""
    strangers = np.count_nonzero(np.diff(X.indptr)[holdout.users] == 0)
    for each in settings:
        require(
            each.solver.folds or strangers < len(holdout.users),
            f"{each.method} scores only users it was trained on, and {name} measures users who were held out; "
            "use a method with fold-in, or a protocol that trains on every user",
        )


class Look:
    """The validation part, as a fit that stops early sees it: a mean over users, always the same ones."""

    def __init__(self, holdout: Holdout, seed: int):
        self.holdout, self.seconds = holdout, 0.0
        rows = np.flatnonzero(np.diff(holdout.target.indptr))
        if len(rows) > VALID_USERS:
            rows = np.sort(stream(seed, "early stopping", "users").choice(rows, VALID_USERS, replace=False))
        self.rows = rows

    def __call__(self, model: Recommender, metric: str) -> float:
        start = time.perf_counter()
        metrics = MetricSet((metric,))
        (ranking,) = rank([model], self.holdout, metrics.k, rows=self.rows)
        values = measure(ranking, self.holdout.target, np.zeros(model.n_items), metrics).values[metric]
        self.seconds += time.perf_counter() - start
        return float(np.mean(values))


class _Watch:
    """Follows a fit by iterations: tells of it, and measures it now and then on the same users each time.

    `curve`: a row an iteration. `seconds`: what the measuring took, which is no part of the fit.
    """

    def __init__(self, job: Job, holdout: Holdout, X: sp.csr_array, progress: Progress, on_look: OnLook):
        self.job, self.holdout, self.progress, self.on_look = job, holdout, progress, on_look
        self.curve: list[dict[str, float]] = []
        self.seconds = 0.0
        if not (job.curve and job.settings[0].solver.iterate):
            return
        names = [name for name in job.metrics.names if name.partition("@")[0] in CURVE]
        self.metrics = MetricSet(tuple(names))
        self.counts = np.bincount(X.indices, minlength=X.shape[1])
        rows = np.flatnonzero(np.diff(holdout.target.indptr))
        rng = stream(0, "curve", "users")  # the same users whatever the seed, so that curves of several can be laid together
        self.rows = np.sort(rng.choice(rows, min(CURVE_USERS, len(rows)), replace=False))

    def __call__(self, step: Step) -> None:
        self.progress("fit", step.number, step.of)
        row = {"iteration": step.number, "seconds": round(step.seconds, 4), "loss": step.loss}
        if step.valid is not None:
            row["valid"] = step.valid
        if self.job.curve and (step.number % self.job.curve == 0 or step.number == step.of):
            start = time.perf_counter()
            (ranking,) = rank([step.model()], self.holdout, self.metrics.k, rows=self.rows)
            measured = measure(ranking, self.holdout.target, self.counts, self.metrics)
            row |= {name: float(np.mean(values)) for name, values in measured.values.items()}
            self.seconds += time.perf_counter() - start
        self.curve.append(row)
        if step.valid is not None:
            start = time.perf_counter()
            self.on_look(self.curve)
            self.seconds += time.perf_counter() - start


def failure(job: Job, setting: Setting, error: BaseException | str) -> RunRecord:
    """The record of a run that failed, with its reason in one line."""
    if isinstance(error, RankbenchError):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    return _unfinished(job, setting, "failed", reason, [])


def stopped(job: Job, setting: Setting, reason: str, looks: list[dict[str, float]]) -> RunRecord:
    """The record of a run that its search ended; `looks`: what valid said until then."""
    return _unfinished(job, setting, "stopped", reason, looks)


def _unfinished(job: Job, setting: Setting, status: str, reason: str, curve: list[dict[str, float]]) -> RunRecord:
    return RunRecord(
        id=job.run_id(setting),
        method=setting.method,
        params=setting.resolved,
        dataset={"name": job.card.name},
        fit_on=job.fit_on,
        measured_on=job.measure_on,
        seed=job.seed,
        dtype=job.dtype,
        status=status,
        error=" ".join(reason.split())[:500],
        curve=curve,
        arm=setting.arm,
        stage=job.stage,
        environment=environment(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def describe(dataset: Dataset) -> dict[str, Any]:
    """What a record says of its data."""
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "protocol": dataset.card.split.protocol,
        "split_seed": dataset.card.split.seed,
        "recall": dataset.card.recall,
        "stand_in": dataset.card.stand_in,
        "counts": dataset.counts,
        "differences": list(dataset.differences),
        "sources": list(dataset.sources),
        "raw_gone": dataset.raw_gone,
    }


def _first_of_each_identity(settings: tuple[Setting, ...]) -> list[int]:
    """For every setting, the position of the first one with the same ranking."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(each.identity, position) for position, each in enumerate(settings)]


def _refuse_non_finite(record: RunRecord) -> None:
    for name, value in record.metrics.items():
        if not np.isfinite(value["mean"]):
            raise NumericalError(f"{record.method}: {name} is {value['mean']} with {record.params}")


@contextmanager
def _timed(seconds: dict[str, float], phase: str):
    start = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - start
