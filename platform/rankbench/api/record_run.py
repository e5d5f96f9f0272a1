"""One run as `rankbench run` makes it: checked, fitted, measured, recorded, and sent to MLflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.api.execution import card_and_params, memory_bytes, open_execution, require_effect
from rankbench.core.attempts import FolderAttempt, StoredAttempt
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError, require
from rankbench.core.files import require_writable
from rankbench.core.replica import CHECKSUMS
from rankbench.data.cards import Card, load_card
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet, asked_metrics, require_within
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit_warnings import fit_warnings, unread
from rankbench.experiment.job import Job, MethodConfig, configure
from rankbench.experiment.options import MetricOptions, RunOptions
from rankbench.experiment.outcome import Outcome
from rankbench.experiment.run import run
from rankbench.fitting.drive import Row
from rankbench.fitting.method import ClosedForm
from rankbench.schema.shared_sweeps import claimed_run, store_run
from rankbench.sweeps.views.phases import err, phase_progress
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord, find_record, keep_aside, read_record, require_own, write_record
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import standing_view


@dataclass(frozen=True)
class PlannedRun:
    """A setting on data, with its metrics, as options say. `cutoffs_by`: the option that the largest cutoff is from, if any.
    `given`: the parameters that they name.
    """

    card: Card
    config: MethodConfig
    metrics: MetricSet
    cutoffs_by: str
    given: dict[str, Any]


@dataclass(frozen=True)
class RecordedRun:
    """A record, its folder, and whether it is `kept`, that of an earlier run."""

    record: RunRecord
    folder: Path
    kept: bool


def plan_run(options: RunOptions, environment: Environment) -> PlannedRun:
    """Return what is fitted and measured. Raises ConfigError for whatever is wrong with it."""
    changes, given = card_and_params(options.params or ())
    config = configure(options.method, given)
    dtype, fit_on = options.dtype, options.fit_on
    require(dtype in ("float32", "float64"), f"--dtype: expected float32 or float64, got {dtype}")
    require(fit_on in (None, "train", "train+valid"), f"--fit-on: expected train or train+valid, got {fit_on}")
    config.require_end(fit_on, "--fit-on train+valid")
    asked = chosen_metrics(options)
    return PlannedRun(load_card(options.dataset, environment, changes), config, *asked, given)


def record_run(options: RunOptions, planned: PlannedRun, environment: Environment, labels: Labels | None = None) -> RecordedRun:
    """Fit and measure what is planned, keep the record, and send it to MLflow with `labels`, if they are given. An earlier
    finished record of the same code is kept; one of other code is kept aside. What a user should know is said on stderr.

    Raises ConfigError, DataError and StorageError before the fit for what can be known then.
    """
    card, config = planned.card, planned.config
    sink = sink_of_runs(environment, labels) if labels else None  # a wrong address is refused before the fit
    environment.require_writable_runs()
    if options.spill is not None:
        require_writable(options.spill)
    if planned.cutoffs_by:
        with phase_progress() as progress:
            n_items = prepare(card, environment, progress).split.n_items
        require_within(planned.metrics, n_items, card.name, planned.cutoffs_by)
    require_effect(config, options)
    for warning in unread(config, planned.given):
        err.print(f"warning: {warning}")
    part = options.fit_on or config.part_to_fit(card)
    job = Job(card, (config,), part, metrics=planned.metrics, dtype=options.dtype, seed=options.seed, curve=options.curve)
    if isinstance(config.spec, ClosedForm) and options.address and options.spill is None:
        environment.require_folder_of_results("a closed form on a cluster", "give --spill with a folder that all nodes share")

    def shown(record: RunRecord) -> dict[str, Any]:
        """How MLflow shows the record: a name that the user gives is the whole name of a single run."""
        name = "" if labels and labels.name else run_name(record, tuple(planned.given), dataset=True)
        return {"folder": environment.results / "runs" / record.id, "name": name, "params": config.used}

    with sink or nullcontext():
        with claimed_run(job.run_id(config), environment) as attempt:
            points = LivePoints(lambda record: sink.follow(record, **shown(record))) if sink else None
            outcome, execution = _fit(job, options, environment, points)
            folder, kept, notes = write(outcome, attempt, options.fresh, environment)
        record = outcome.record
        for note in notes:
            err.print(note)
        if options.memory and record.peak_memory_bytes > memory_bytes(options):
            peak = record.peak_memory_bytes / 1e9
            err.print(f"warning: the fit needed {peak:.2f} GB at its peak, more than --memory {options.memory}")
        if options.device != "cpu" and record.device == "cpu":
            err.print(f"warning: --device {options.device} had no effect: the matrix was solved by tiles, on processors")
        found = fit_warnings(record.method, record.params, record.curve, record.iterations, record.dtype)
        for problem in (record.interval_warning(), *found):
            if problem:
                err.print(f"warning: {problem}")
        if execution.checkpoints:
            execution.checkpoints.clear()
        if sink:
            send(sink, record, **shown(record))
    return RecordedRun(record, folder, kept)


def chosen_metrics(options: MetricOptions) -> tuple[MetricSet, str]:
    """As `asked_metrics`, of options. Raises ConfigError for unknown metrics, and for cutoffs without effect."""
    metrics = None if options.metrics is None else options.metrics.split(",")
    return asked_metrics(metrics, None if options.cutoffs is None else _cutoffs(options.cutoffs))


class LivePoints:
    """The points of one fit, which are sent as its iterations end. `follow(record)` returns what takes new rows."""

    def __init__(self, follow: Callable[[RunRecord], Callable[[Sequence[Row]], None]]):
        self.follow, self.sent = follow, 0

    def begin(self, record: RunRecord) -> None:
        self.take = self.follow(record)

    def curve(self, curve: Sequence[Row]) -> None:
        """Take the curve so far. A fit that goes on from a checkpoint begins with all rows before it."""
        self.take(curve[self.sent :])
        self.sent = len(curve)


def _cutoffs(text: str) -> tuple[int, ...]:
    try:
        cutoffs = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        raise ConfigError(f"--cutoffs: expected whole numbers such as 10,20, got {text!r}") from None
    require(cutoffs[0] >= 1, f"--cutoffs: k must be at least 1, got {cutoffs[0]}")
    return cutoffs


def _fit(job: Job, options: RunOptions, environment: Environment, points: LivePoints | None) -> tuple[Outcome, Execution]:
    (config,) = job.configs
    run_id = job.run_id(config)
    if not options.fresh:
        try:  # an unreadable record is refused before the fit, not after it
            if record := find_record(folder := environment.results / "runs" / run_id):
                require_own(folder, record)
        except DataError as error:
            raise DataError(f"{error}; --fresh replaces it") from None
    checkpoints, spill = environment.results / "checkpoints" / run_id, options.spill or environment.results / "spill"
    with open_execution(config.spec, options, checkpoints, spill, options.threads) as execution, phase_progress() as progress:
        live = (points.begin, points.curve) if points else ()
        (outcome,) = run(job, environment, execution, progress, *live)
    return outcome, execution


def write(
    outcome: Outcome, attempt: FolderAttempt | StoredAttempt, fresh: bool, environment: Environment
) -> tuple[Path, bool, list[str]]:
    """Write a record, and return its folder, whether an earlier one is kept there, and what to say about earlier ones."""
    record, runs = outcome.record, environment.results / "runs"
    fence = attempt if isinstance(attempt, FolderAttempt) else None  # a store's local copy is of this host alone
    before = None if fresh else find_record(runs / record.id)
    # A record of other data is no longer one of this run, although ids do not depend on the content of the user's files.
    moved = before is not None and before.finished and before.dataset.fingerprint != record.dataset.fingerprint
    aside = None
    if before and before.finished and not moved and before.code != record.code and before.metrics != record.metrics:
        aside = keep_aside(runs / record.id, before)
    replace = fresh or moved or aside is not None
    folder = write_record(runs, record, outcome.per_user, replace=replace, fence=fence)
    # Compared by their durations, because two runs may start in the same second.
    earlier = read_record(folder)
    kept = earlier.seconds != record.seconds
    # A kept record without checksums is not in the store: its upload failed.
    if isinstance(attempt, StoredAttempt) and (not kept or not (folder / CHECKSUMS).is_file()):
        store_run(folder, attempt)
        if aside:
            store_run(aside, attempt)
    notes = []
    if aside:
        notes.append(f"the code has changed since an earlier run of this setting, whose record is kept as {aside.name}")
    if kept:
        what = "its seconds and memory" if earlier.metrics == record.metrics else "other metrics, though of the same code"
        notes.append(f"an earlier finished record of this run was kept, with {what}; --fresh replaces it")
    if moved:
        name = record.dataset.name
        notes.append(f"the data of {name} have changed since an earlier run of this setting, whose record was replaced")
    return folder, kept, notes


def sink_of_runs(environment: Environment, labels: Labels) -> MlflowSink:
    """Return what sends records to the experiment `runs`."""
    return MlflowSink.of(environment, "runs", labels, _warn)


def send(sink: MlflowSink, record: RunRecord, folder: Path, name: str, params: Sequence[str]) -> None:
    """Send a record to MLflow, with the view of its experiment, and wait for the uploader."""
    view = standing_view("runs", "tags.`rankbench.stage` = 'run'", curves=True)
    with err.status("sending to MLflow") as line:
        sink.waiting = lambda left: line.update(f"sending to MLflow: {left} messages left")
        sink.open()
        sink.describe(view, "Single runs: a setting on a dataset.")
        sink.send(record, folder, name, params)
        sink.close()


def _warn(line: str) -> None:
    err.print(f"warning: {line}")
