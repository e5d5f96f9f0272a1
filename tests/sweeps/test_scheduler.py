"""Trials held at a rung: they go on when the trial that they are compared with arrives, or has not started for long."""

from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.stage import Search
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.trials import scheduler as scheduling
from rankbench.sweeps.trials.dispatch import Dispatch
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.queue import Queue
from rankbench.sweeps.trials.trainable import EVALUATIONS
from rankbench.sweeps.units import Unit

from .planned import two_units


class Controller:
    """Of Tune's controller, what the scheduler uses; Ray itself has no way to keep a trial from starting."""

    def __init__(self, trials):
        self.trials, self.executed = trials, []
        self._tune_controller = self

    def get_trials(self):
        return self.trials

    get_live_trials = get_trials

    def _execute_action(self, trial, decision):
        self.executed.append((trial.trial_id, decision))


@pytest.fixture
def race(tmp_path):
    """(scheduler, two trials of one arm, controller, report): `report(trial, value)` evaluates after the first epoch."""
    search, units = Search(SweepStore(tmp_path), SearchSpec(scheduler="asha", grace=1)), two_units(Environment.from_env())
    for unit in units:
        search.add(unit)
    trials = [SimpleNamespace(trial_id=str(i), config={"unit": i}, status="RUNNING") for i in range(2)]
    group = Group(units, [], search, Dispatch([Machine(2, 10**9)]))
    scheduler, controller = scheduling.Scheduler(group), Controller(trials)

    def report(trial, value):
        rows = f'[{{"iteration": 1, "seconds": 0.1, "loss": 1.0, "valid": {value}}}]'
        return scheduler.on_trial_result(controller, trial, {EVALUATIONS: rows})

    return scheduler, trials, controller, report


@pytest.mark.parametrize(("value", "decision"), [(0.5, "STOP"), (0.9, "CONTINUE")])
def test_a_trial_that_is_early_waits_for_the_one_before_it(race, value, decision):
    scheduler, (first, second), controller, report = race
    assert report(second, value) == "NOOP"
    scheduler.choose_trial_to_run(controller)
    assert controller.executed == []
    assert report(first, 0.7) == "CONTINUE"
    scheduler.choose_trial_to_run(controller)
    scheduler.choose_trial_to_run(controller)
    assert controller.executed == [("1", decision)]


def test_a_held_trial_whose_worker_is_lost_is_not_sent_on(race):
    scheduler, (first, second), controller, report = race
    report(second, 0.5)
    scheduler.on_trial_error(controller, second)
    report(first, 0.7)
    scheduler.choose_trial_to_run(controller)
    assert controller.executed == []


def test_trials_go_on_without_one_that_finds_no_place_to_start(race, monkeypatch, caplog):
    scheduler, (first, second), controller, report = race
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=1000.0)
    monkeypatch.setattr(scheduling, "time", clock)
    first.status = "PENDING"
    report(second, 0.5)
    scheduler.last_progress = clock.now
    clock.now += scheduling.START_TIMEOUT - 1
    assert scheduler.choose_trial_to_run(controller) is first
    assert controller.executed == []
    clock.now += 2
    scheduler.choose_trial_to_run(controller)
    assert controller.executed == [("1", "CONTINUE")] and "no machine has started an earlier trial" in caplog.text


@pytest.mark.parametrize(("in_order", "expected"), [(False, [1, 3, 2, 0]), (True, [0, 1, 2, 3])])
def test_units_start_with_the_largest_or_in_their_order(tmp_path, in_order, expected):
    card = load_card("synthetic", Environment.from_env())
    costs = (1.0, 900.0, 20.0, 50.0)
    units = [Unit(Job(card, (configure("ease", {"lam": cost}),)), 1, 1, cost) for cost in costs]
    search = Search(SweepStore(tmp_path), SearchSpec())
    group = Group(units, [], search, Dispatch([Machine(1, 10**9)]), in_order)
    queue = Queue(group, lambda *_: None)
    started = []
    for name in "abcd":
        started.append(queue.suggest(name)["unit"])
        queue.on_trial_complete(name)
    assert started == expected
