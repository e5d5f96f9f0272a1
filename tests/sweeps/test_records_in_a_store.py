"""A sweep whose results are in a store: finished runs of other machines are copied, and stopped trials are known at once."""

from dataclasses import replace

import pytest

from rankbench.core.storage import Storage
from rankbench.experiment.execution import Execution
from rankbench.experiment.run import run
from rankbench.schema.experiment import SearchSpec
from rankbench.schema.shared_sweeps import copy_records_from, stored_ids, stored_records
from rankbench.schema.stored_sweep import find_sweep, read_sweep
from rankbench.sweeps import reuse
from rankbench.sweeps.resume import folder_to_resume
from rankbench.sweeps.search.stage import Search, results_of
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.sweep import open_sweep
from rankbench.tracking.record import read_record

from .planned import plan_of, two_units


@pytest.fixture
def machines(environment, s3, tmp_path):
    store = Storage.from_env(f"{s3}/results", "here")
    return [replace(environment, results=tmp_path / name, results_store=store) for name in ("first", "second", "third")]


def test_a_finished_run_is_copied_and_found(machines, monkeypatch):
    first, second, third = machines
    code = {"revision": "abc", "code": "1"}
    monkeypatch.setattr(reuse, "describe_environment", lambda: code)  # the version of a tree without changes
    planned = plan_of(first, {"method": "popularity"}, cpus=1)
    (unit,) = planned.search
    (outcome,) = run(unit.job, first, Execution(1))
    place = open_sweep(planned, first)
    place.trial(unit.run_id, unit.ids).write(replace(outcome.record, environment=code), outcome.per_user)
    assert not place.records.exists()  # it is in the store alone until the driver copies it
    place.fetch(unit.ids)
    assert read_record(place.records / unit.run_id).finished

    other = open_sweep(planned, second)
    assert reuse.Earlier.than(other.folder, second).adopt(unit, other)
    copies = [read_record(each.records / unit.run_id) for each in (place, other)]
    assert copies[0] == copies[1]
    monkeypatch.setattr(reuse, "describe_environment", lambda: code | {"code": "2"})
    again = open_sweep(planned, second)
    assert not reuse.Earlier.than(again.folder, second).adopt(unit, again)

    assert stored_ids(third.results_store) == [each.folder.name for each in (place, other, again)]
    assert [name for name, _ in stored_records(third.results_store)] == [unit.run_id] * 2
    assert folder_to_resume(planned, third).name == again.folder.name
    assert read_sweep(find_sweep(place.folder.name, third)).records == {unit.run_id: copies[0]}
    copy_records_from(unit.run_id, third)
    assert read_record(third.results / "sweeps" / other.folder.name / "records" / unit.run_id) == copies[0]


def test_a_trial_that_the_search_stops_has_its_record_at_the_driver(machines):
    first, second, _ = machines
    store = SweepStore.of(first.results / "sweeps" / "small-01234567-20260101-000000-000000", first)
    search, units = Search(store, SearchSpec(scheduler="asha", grace=1)), two_units(first)
    for unit, value in zip(units, (0.7, 0.5), strict=True):
        search.add(unit)
        search.report(unit, [{"iteration": 1, "seconds": 0.1, "loss": 1.0, "valid": value}])
    assert [search.should_stop(unit) for unit in units] == [False, True]
    search.end(units[1])
    (record,) = results_of(units[1], store.records)
    assert record.status == "stopped"
    copy_records_from(record.id, second)
    assert read_record(second.results / "sweeps" / store.folder.name / "records" / record.id) == record
