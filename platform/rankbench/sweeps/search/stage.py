"""The search of a stage as the driver knows it: a study for each dataset and arm, and the number of each trial in its study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankbench.experiment.outcome import stopped
from rankbench.fitting.drive import Row
from rankbench.fitting.method import Iterative
from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.draws import Draws
from rankbench.sweeps.search.study import Study
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.tracking.record import RunRecord, find_record

OnDone = Callable[[Unit, list[RunRecord], bool], None]  # the last argument: whether the records were there before


class Search:
    """Studies of a stage, the units that they drew, and the evaluations of each trial.

    A trial is identified by the id of its run, because Tune runs it as another trial after its worker was lost.
    """

    def __init__(self, store: SweepStore, spec: SearchSpec):
        self.store, self.records, self.spec = store, store.records, spec
        self.drawn: list[Unit] = []
        self._draws = Draws(store.folder / "draws.jsonl", store)
        self._studies: dict[tuple[str, str], Study] = {}
        self._trials: dict[str, tuple[Study, int]] = {}  # run id → study and number of the trial in it
        self._evaluations: dict[str, list[Row]] = {}
        self._stopped: set[str] = set()

    def add(self, unit: Unit) -> None:
        """Add a planned unit to the study of its arm if it can be stopped early, with its result if it has one already."""
        if not (self.spec.prunes and unit.can_end_early):
            return
        if unit.arm not in self._studies:
            self._studies[unit.arm] = self._study(unit, {})
        self._trials[unit.run_id] = self._studies[unit.arm], self._studies[unit.arm].start()
        self._read_result(unit)

    def open(self, search: AdaptiveSearch, lag: int) -> None:
        """Create the study of an adaptive search. `lag` as in `Study`, unless an interrupted sweep began with another one."""
        study = self._study(search.draft, search.arm.params)
        study.lag = self._draws.lag(study.name, lag)
        self._studies[search.draft.arm] = study

    def waits(self, search: AdaptiveSearch) -> bool:
        """Whether the next draw depends on a trial that still runs."""
        return self._studies[search.draft.arm].waits

    def draw(self, search: AdaptiveSearch, on_done: OnDone) -> tuple[Unit, dict[str, Any]] | None:
        """Return the next unit and its drawn parameters. None if it needs no trial, because an interrupted sweep ran it, an
        earlier draw was the same, or values of the registry's ranges do not fit together; `on_done` is called then.
        """
        study = self._studies[search.draft.arm]
        number = study.next
        stored_values = self._draws.drawn(study.name, number)
        values, repeats = study.draw(stored_values)
        if stored_values is None:
            self._draws.add(study.name, values)
        unit = search.drawn(values)
        if unit is None:
            study.end(number, None)
            on_done(search.draft, [], True)
            return None
        if repeats is None:
            self.drawn.append(unit)
            self._trials[unit.run_id] = study, number
            if not self._read_result(unit):
                return unit, values
        on_done(unit, results_of(unit, self.records), True)
        return None

    def report(self, unit: Unit, rows: list[Row]) -> None:
        """Add the newest evaluations of a unit; rows that were reported before are skipped."""
        study, number = self._trials[unit.run_id]
        known = self._evaluations.setdefault(unit.run_id, [])
        for row in rows:
            if not known or row["iteration"] > known[-1]["iteration"]:
                known.append(row)
                study.report(number, int(row["iteration"]), row["valid"])

    def should_stop(self, unit: Unit, wait: bool = True) -> bool | None:
        """Whether a unit should end after its latest evaluation; see `Halving.should_stop`."""
        study, number = self._trials[unit.run_id]
        stop = unit.run_id in self._stopped or study.should_stop(number, wait)
        if stop:
            self._stopped.add(unit.run_id)
        return stop

    def was_stopped(self, unit: Unit) -> bool:
        """Whether the scheduler has ended the trial of a unit; `end` then writes its record."""
        return unit.run_id in self._stopped

    def end(self, unit: Unit) -> None:
        """Pass the result of a trial that is over to its study, and write the record of one that was stopped."""
        self.store.fetch(unit.ids)
        if unit.run_id not in self._trials:
            return
        if self.was_stopped(unit) and not results_of(unit, self.records):
            rows, config = self._evaluations[unit.run_id], unit.job.configs[0]
            assert config.stopping, "only a unit that can end early is stopped"
            reason = (
                f"stopped by {self.spec.scheduler} after epoch {rows[-1]['iteration']}, "
                f"{config.stopping.stop_metric} on valid {rows[-1]['valid']:.4f}"
            )
            self.store.trial(unit.run_id, unit.ids).write(stopped(unit.job, config, reason, rows), None)
            self.store.fetch(unit.ids)
        if not self._read_result(unit):
            study, number = self._trials[unit.run_id]
            study.end(number, None)

    def _study(self, unit: Unit, params: dict[str, Any]) -> Study:
        config = unit.job.configs[0]
        epochs = config.spec.limit(config.params) if isinstance(config.spec, Iterative) else 0
        return Study("/".join(unit.arm), params, self.spec, epochs)

    def _read_result(self, unit: Unit) -> bool:
        """Pass the record of a unit to its study. Returns False if there is none or it is a failure."""
        records = results_of(unit, self.records)
        if records:
            (record,) = records
            self.report(unit, [row for row in record.curve if "valid" in row])
            study, number = self._trials[unit.run_id]
            value = record.metrics[self.spec.choose.metric].mean if record.finished else None
            study.end(number, value, stopped=not record.finished)
        return bool(records)


def records_of(unit: Unit, folder: Path) -> list[RunRecord]:
    """The records in `folder` of the unit's settings, failed ones included."""
    return [record for name in unit.ids if (record := find_record(folder / name))]


def results_of(unit: Unit, folder: Path) -> list[RunRecord]:
    """The records in `folder` of the unit's settings that finished, or that the search stopped."""
    return [record for record in records_of(unit, folder) if not record.failed]
