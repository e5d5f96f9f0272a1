"""The plan on Ray Tune: every unit is a trial, every trial writes its own records, a failed one leaves its reason."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ray import tune

from rankbench import experiment
from rankbench.cluster.session import Session
from rankbench.errors import StorageError
from rankbench.settings import Settings
from rankbench.sweeps.plan import Unit
from rankbench.tracking.record import RunRecord, read_record, write_record

ATTEMPTS = 2  # at a unit whose worker vanishes: killed, out of memory, a node gone
OnDone = Callable[[Unit, list[RunRecord]], None]


def run_units(
    units: Sequence[Unit], settings: Settings, records: Path, session: Session, concurrent: int | str, on_done: OnDone
) -> list[RunRecord]:
    """Run all units as trials of one Tuner; returns a record for each of their settings, finished or failed.

    Records appear in `records` as trials finish, and `on_done` hears of each unit. A setting that has a finished record
    there is not run again. Raises StorageError when a unit needs more memory than the cluster has.
    """
    waiting = []
    for unit in units:
        done = _finished(unit, records)
        if len(done) == len(unit.job.settings):
            on_done(unit, done)
        else:
            waiting.append(unit)
            for record in _all_records(unit, records):
                if not record.finished:
                    shutil.rmtree(records / record.id)
    for unit in waiting:
        if unit.memory_bytes > session.memory_bytes:
            raise StorageError(
                f"{unit.title}: a fit needs {unit.memory_bytes / 1e9:.1f} GB, "
                f"the cluster offers {session.memory_bytes / 1e9:.1f} GB"
            )
    # Units of equal needs form one Tuner, since Tune gives all trials of a Tuner the same resources.
    for cpus, memory in sorted({(unit.cpus, unit.memory_bytes) for unit in waiting}):
        alike = [unit for unit in waiting if (unit.cpus, unit.memory_bytes) == (cpus, memory)]
        room = max(1, min(session.cpus // cpus, session.memory_bytes // memory))
        bound = room if concurrent == "auto" else min(int(concurrent), room)
        lost: dict[int, str] = {}
        for _ in range(ATTEMPTS):
            lost = _tune(alike, settings, records, cpus, memory, bound, on_done)
            alike = [alike[position] for position in lost]
            if not alike:
                break
        for unit, reason in zip(alike, lost.values(), strict=True):
            for setting in unit.job.settings:
                write_record(records, experiment.failure(unit.job, setting, f"the worker was lost: {reason}"), None)
            on_done(unit, _all_records(unit, records))
    return [record for unit in units for record in _all_records(unit, records)]


def _tune(
    units: list[Unit], settings: Settings, records: Path, cpus: int, memory: int, concurrent: int, on_done: OnDone
) -> dict[int, str]:
    """Run `units`; returns the positions of those whose worker was lost, with what is known of it."""
    trainable = tune.with_resources(
        tune.with_parameters(_Trial, units=units, settings=settings, records=records),
        {"CPU": cpus, "memory": memory},
    )
    storage = records.parent / "tune"
    watcher = _Watcher(units, records, on_done)
    tuner = tune.Tuner(
        trainable,
        param_space={"unit": tune.grid_search(list(range(len(units))))},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=concurrent,
            trial_dirname_creator=lambda trial: trial.trial_id,
            # A worker starts once and takes trial after trial: its imports cost more than a small fit.
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"trials-{os.getpid()}",
            storage_path=str(storage),
            verbose=0,
            callbacks=[watcher],
            # Tune's own retry waits for ever on the worker that it kept for reuse; run_units retries instead.
            failure_config=tune.FailureConfig(max_failures=0),
            # A fit has no half-way: its record is all that it leaves.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    # A lost worker is this file's to report, in one line; Tune would print its stack.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    tuner.fit()
    # Tune's own state serves nobody: a sweep is continued from its records.
    shutil.rmtree(storage, ignore_errors=True)
    return watcher.lost


class _Trial(tune.Trainable):
    """One unit a trial, in a worker. What the rooms raise becomes a record; only a lost worker is Tune's to retry."""

    def setup(self, config: dict, units: list[Unit], settings: Settings, records: Path) -> None:
        self.units, self.settings, self.records = units, settings, records
        self.unit = units[config["unit"]]

    def reset_config(self, new_config: dict) -> bool:
        self.unit = self.units[new_config["unit"]]
        return True

    def step(self) -> dict:
        job = self.unit.job
        try:
            for outcome in experiment.run(job, self.settings, n_threads=self.unit.cpus):
                write_record(self.records, outcome.record, outcome.per_user)
            failed = 0
        except Exception as error:
            for setting in job.settings:
                write_record(self.records, experiment.failure(job, setting, error), None)
            failed = len(job.settings)
        # Names of ours carry a prefix: Tune gives plain ones a meaning, such as "done".
        return {"done": True, "rankbench/settings": len(job.settings), "rankbench/failed": failed}


class _Watcher(tune.Callback):
    """Hands finished units on, and remembers those whose worker was lost."""

    def __init__(self, units: list[Unit], records: Path, on_done: OnDone):
        self.units, self.records, self.on_done = units, records, on_done
        self.lost: dict[int, str] = {}

    def __getstate__(self) -> dict:
        # Tune saves its callbacks for a restore, which never happens here: records decide what is left to do.
        return {}

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        unit = self.units[trial.config["unit"]]
        self.on_done(unit, _all_records(unit, self.records))

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        words = str(trial.get_error() or trial.get_pickled_error() or "").strip().splitlines()
        self.lost[trial.config["unit"]] = words[-1] if words else "it left no message"


def _finished(unit: Unit, records: Path) -> list[RunRecord]:
    return [record for record in _all_records(unit, records) if record.finished]


def _all_records(unit: Unit, records: Path) -> list[RunRecord]:
    folders = [records / unit.job.run_id(setting) for setting in unit.job.settings]
    return [read_record(folder) for folder in folders if (folder / "record.json").is_file()]
