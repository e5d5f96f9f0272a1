"""A unit that ends between the records of its settings keeps those that are complete."""

import pytest

from rankbench.core.plugins import Shipment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.sweeps import store as store_module
from rankbench.sweeps.run_units import give_up
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.trials.trainable import Planned, UnitTrainable
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import find_record, read_per_user

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def unit(environment):
    card = load_card("synthetic", environment)
    configs = tuple(configure("deql-l2", {"lam_prime": 10, "b": b}, arm=f"b={b}") for b in (0.5, 1.0))
    return Unit(Job(card, configs, stage="search"), 1, 1, 1.0)


def run_with_a_disk_that_is_full_for(name, unit, environment, folder, monkeypatch):
    write = store_module.write_record

    def limited(records, record, per_user=None, **options):
        if record.id == name and per_user is not None:
            raise OSError(28, "No space left on device")
        return write(records, record, per_user, **options)

    monkeypatch.setattr(store_module, "write_record", limited)
    trial = UnitTrainable.__new__(UnitTrainable)
    store = SweepStore(folder)
    trial.setup({"unit": 0, "nodes": 1}, Planned(Shipment.of_this_process(), [unit], []), environment, store, prunes=False)
    while not trial.step().get("done"):
        pass
    return store


def test_a_disk_that_is_full_for_the_second_record_leaves_the_first_one(unit, environment, tmp_path, monkeypatch):
    first, second = (unit.job.run_id(config) for config in unit.job.configs)
    store = run_with_a_disk_that_is_full_for(second, unit, environment, tmp_path, monkeypatch)
    assert find_record(store.records / first).finished and len(read_per_user(store.records / first))
    failed = find_record(store.records / second)
    assert failed.failed and "No space left" in failed.error


def test_a_worker_that_is_lost_after_a_record_leaves_it(unit, environment, tmp_path, monkeypatch):
    first, second = (unit.job.run_id(config) for config in unit.job.configs)
    store = run_with_a_disk_that_is_full_for(second, unit, environment, tmp_path, monkeypatch)
    give_up(unit, store, "its worker process died (the worker was lost 2 times)")
    assert find_record(store.records / first).finished and len(read_per_user(store.records / first))
    assert find_record(store.records / second).error == "its worker process died (the worker was lost 2 times)"
