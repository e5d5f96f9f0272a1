"""A unit that ends between the records of its settings keeps those that are complete."""

import pytest

from rankbench.core.plugins import Shipment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.schema.experiment import ArmSpec
from rankbench.sweeps import store as store_module
from rankbench.sweeps.run_units import give_up
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.trials.trainable import Planned, UnitTrainable
from rankbench.sweeps.units import AdaptiveSearch, Unit
from rankbench.tracking.record import find_record, read_per_user

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def unit(environment):
    card = load_card("synthetic", environment)
    configs = tuple(configure("deql-l2", {"lam_prime": 10, "b": b}, arm=f"b={b}") for b in (0.5, 1.0))
    return Unit(Job(card, configs, stage="search"), 1, 1, 1.0)


def test_a_full_disk_and_a_lost_worker_leave_the_first_of_two_records(unit, environment, tmp_path, monkeypatch):
    first, second = (unit.job.run_id(config) for config in unit.job.configs)
    write = store_module.write_record

    def limited(records, record, per_user=None, **options):
        if record.id == second and per_user is not None:
            raise OSError(28, "No space left on device")
        return write(records, record, per_user, **options)

    monkeypatch.setattr(store_module, "write_record", limited)
    trial, store = UnitTrainable.__new__(UnitTrainable), SweepStore(tmp_path)
    trial.setup({"unit": 0, "nodes": 1}, Planned(Shipment.of_this_process(), [unit], []), environment, store, prunes=False)
    while not trial.step().get("done"):
        pass
    failed = find_record(store.records / second)
    assert failed.failed and "No space left" in failed.error
    give_up(unit, store, "its worker process died (the worker was lost 2 times)")
    assert find_record(store.records / first).finished and len(read_per_user(store.records / first))
    assert find_record(store.records / second).error == "its worker process died (the worker was lost 2 times)"


def test_a_fit_that_an_error_ends_keeps_its_checkpoints_and_one_that_the_scheduler_stops_does_not(environment, tmp_path):
    trial, card = UnitTrainable.__new__(UnitTrainable), load_card("synthetic", environment)
    values = {"embedding_dim": 8, "epochs": 50, "patience": 50, "eval_every": 1}
    settings = [configure("bpr", values | {"learning_rate": rate}, arm="a") for rate in (0.1, 0.2)]
    units = [Unit(Job(card, (setting,), stage="search"), 1, 1, 1.0) for setting in settings]
    planned = Planned(Shipment.of_this_process(), units, [])
    trial.setup({"unit": 0, "nodes": 1}, planned, environment, SweepStore(tmp_path), prunes=True)
    for ends, kept in ((trial.cleanup, True), (lambda: trial.reset_config({"unit": 1, "nodes": 1}), False)):
        trial.step()
        assert trial.run
        folder = trial._checkpoints
        folder.mkdir(parents=True, exist_ok=True)
        ends()
        assert trial.run is None and folder.exists() == kept


def test_a_draw_that_does_not_fit_together_is_left_out_and_told(caplog):
    ranges = {"n_layers": {"choice": [1, 2]}, "contrast_layer": {"choice": [1, 2]}}
    arm = ArmSpec(method="bpr", params={"model": "xsimgcl"} | ranges)
    assert AdaptiveSearch(arm, None, 3).drawn({"n_layers": 1, "contrast_layer": 2}) is None
    assert "a draw is left out: " in caplog.text
