"""The Trainable of Ray Tune that runs one unit in a worker.

A fit works in the threads of its worker. One on several nodes runs its blocks as tasks in the placement group of its trial, so
that trials cannot wait for one another's resources. The workers of a fit with `resources.workers` run on the processors that
their trial has reserved.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Any

from ray import tune

from rankbench.core.attempts import Superseded
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, NumericalError, StorageError
from rankbench.core.memory import Spill
from rankbench.core.plugins import Shipment
from rankbench.experiment.execution import Execution, Limit
from rankbench.experiment.outcome import failure
from rankbench.experiment.run import run_stepwise
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.crew import Crew
from rankbench.fitting.drive import Row
from rankbench.fitting.executors import BlockMap
from rankbench.fitting.method import Iterative
from rankbench.sweeps.store import CHECKPOINTS, SweepStore
from rankbench.sweeps.trials.callbacks import BEGUN, ITERATION, ROWS, UNSAVED, VALID
from rankbench.sweeps.trials.limits import OVERDUE, Limits
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.tracking.record import RunRecord, record_content

SPILL = "spill"  # folder beside the records
SAVE_EVERY = 15.0  # seconds between two checkpoints of an iterative fit
MOUNTED = 300.0  # seconds until a node that joins must see the results
REPORT_EVERY, RARELY = 2.0, 4.0  # least and most seconds between two reports of how far a fit is
SHARE = 0.005  # of its time that a fit may wait for the driver after reports, unless it reports rarely
EVALUATIONS = "rankbench/evaluations"  # with a prefix, since Tune gives some plain names a meaning


@dataclass(frozen=True)
class Planned:
    """What a trial may run. The plugins come first, because they are loaded as they are unpickled, and units use them."""

    plugins: Shipment
    units: list[Unit]
    searches: list[AdaptiveSearch]


class UnitTrainable(tune.Trainable):
    """Runs one unit and writes its records. An exception in the run becomes a record, too; only a lost worker fails the trial.

    `config` is {"unit": position in `planned.units`} for a planned unit, and {"search": position in `searches`, "values": drawn
    parameters} for one of an adaptive search; "nodes" is the number of nodes that the trial has reserved. The trial sometimes
    reports its iteration and the new rows of its curve, with `prunes` after each evaluation on the validation set.
    """

    def setup(  # type: ignore[override]  # Tune passes the arguments of `with_parameters`, too
        self,
        config: dict[str, Any],
        planned: Planned,
        environment: Environment,
        store: SweepStore,
        prunes: bool,
    ) -> None:
        self.units, self.searches, self.environment = planned.units, planned.searches, environment.here()
        self.store, self.prunes = store.here(self.environment), prunes
        self.run: Generator[list[Row] | Limit, None, None] | None = None
        self._set_unit(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        if self.run:  # the scheduler has stopped it
            shutil.rmtree(self._checkpoints, ignore_errors=True)
        self.cleanup()
        self._set_unit(new_config)
        return True

    def cleanup(self) -> None:
        """Close a run that has not ended. Its checkpoints stay, because Tune calls this, too, where an error ends it."""
        if self.run:
            self.run.close()
            self.limits.end()
            self.run = None

    def _set_unit(self, config: dict[str, Any]) -> None:
        unit = self.units[config["unit"]] if "unit" in config else self.searches[config["search"]].unit(config["values"])
        self.unit = replace(unit, nodes=config["nodes"])
        self._checkpoints = self.store.folder / CHECKPOINTS / self.unit.run_id
        self.unsaved: list[str] = []  # why its last checkpoint could not be saved
        self.limits = Limits(self.store.folder / OVERDUE / self.unit.run_id)
        self.written: set[str] = set()  # ids of the records of settings that are measured
        self.begun: list[RunRecord] = []  # what is known of its record, until it is reported
        self.reported, self.rows_reported = 0, 0  # number of evaluations and of rows that the driver already has
        self.reported_at, self.every = time.monotonic(), REPORT_EVERY

    def step(self) -> dict[str, Any]:
        """Run to the next report, or to the next evaluation after which the scheduler may stop the trial, or to the end."""
        if self.run is None:
            _require_visible(self.store)
            self.records = self.store.trial(self.unit.run_id, self.unit.ids)
            self.started_at = time.monotonic()
            curve = Checkpoints(self._checkpoints).values().get("curve")
            self.earlier = curve[-1]["seconds"] if curve else 0.0
            self.run = self._start()
        else:
            waited = time.monotonic() - self.reported_at
            self.every = min(max(REPORT_EVERY, waited / SHARE), RARELY)
        try:
            for curve in self.run:
                if isinstance(curve, Limit):
                    self.limits.begin(curve)
                    continue
                if self.prunes and self.unit.can_end_early and "valid" in curve[-1]:
                    # A fit that was resumed reports the evaluations before its checkpoint, too.
                    rows = [row for row in curve if "valid" in row][self.reported :]
                    self.reported += len(rows)
                    return {EVALUATIONS: json.dumps(rows), **self._how_far(curve)}
                if time.monotonic() - self.reported_at >= self.every:
                    return self._how_far(curve)
        except Superseded:
            raise  # nothing may be written; if the driver still waits for this trial, it runs it again
        except Exception as error:
            # After other errors than too little memory, no fit of this process can use the GPU: it is lost, the fit repeated.
            if "CUDA error" in str(error) and not isinstance(error, StorageError):
                raise
            if isinstance(error, NumericalError | ConfigError):  # from there, the fit would only fail again
                shutil.rmtree(self._checkpoints, ignore_errors=True)
            for config in self.unit.job.configs:
                if self.unit.job.run_id(config) not in self.written:  # a full disk may end a trial between two of its records
                    # This counts in bounded searches, also what the fit took before the checkpoint that it went on from.
                    spent = {"fit": round(time.monotonic() - self.started_at + self.earlier, 4)}
                    self.records.write(replace(failure(self.unit.job, config, error), seconds=spent), None)
        self.limits.end()
        self.run = None
        return {"done": True}

    def _how_far(self, curve: list[Row]) -> dict[str, Any]:
        rows, self.rows_reported = curve[self.rows_reported :], len(curve)
        about: dict[str, Any] = {BEGUN: json.dumps(record_content(self.begun.pop()))} if self.begun else {}
        valid = next((row["valid"] for row in reversed(curve) if "valid" in row), None)
        about |= {} if valid is None else {VALID: valid}
        about |= {UNSAVED: self.unsaved[0]} if self.unsaved else {}
        self.reported_at = time.monotonic()
        return {ITERATION: curve[-1]["iteration"], ROWS: json.dumps(rows), **about}

    def _start(self) -> Generator[list[Row] | Limit, None, None]:
        unit, checkpoints, spill = self.unit, None, None
        if unit.gpus and unit.workers == 1:  # workers have GPUs of their own
            from rankbench.training.device import keep_to_share_of_gpu  # imports PyTorch, which takes seconds

            keep_to_share_of_gpu(unit.gpus)
        if isinstance(unit.job.configs[0].spec, Iterative):
            checkpoints = Checkpoints(self._checkpoints, resume=True, every=SAVE_EVERY, discard=True)
            self.unsaved = checkpoints.problem
        if unit.tiled:
            spill = Spill(self.store.folder / SPILL, unit.memory_bytes, resume=True, discard=True)
        execution = Execution(unit.cpus, _executor(unit), unit.device, checkpoints, spill, crew=_crew(unit))
        outcomes = yield from run_stepwise(unit.job, self.environment, execution, on_begin=self.begun.append)
        for outcome in outcomes:
            self.records.write(outcome.record, outcome.per_user)
            self.written.add(outcome.record.id)
        if checkpoints:
            checkpoints.clear()


def _require_visible(store: SweepStore) -> None:
    """Wait for the folder of the results, which a node that has just joined may not have mounted yet. It must not fail trial
    after trial in the meantime.

    Raises StorageError, which names this host.
    """
    end = time.monotonic() + MOUNTED
    while store.shared is None and not store.folder.is_dir():
        if time.monotonic() > end:
            raise StorageError(f"{store.folder}: not there on {gethostname()}; mount it, or take this node out of the cluster")
        time.sleep(1)


def _executor(unit: Unit) -> BlockMap | None:
    """The executor of a unit on several nodes; None for the threads of this process."""
    if unit.nodes == 1:
        return None
    from rankbench.cluster.ray_map import RayMap
    from rankbench.cluster.share import TrialShare

    return RayMap(share=TrialShare.of_this_trial())


def _crew(unit: Unit) -> Crew | None:
    """The workers of a unit that has several; Ray Train is imported only for these."""
    if unit.workers == 1:
        return None
    from rankbench.cluster.train_crew import TrainCrew

    return TrainCrew(unit.workers, reserved=True)
