"""Halving: what it decides is Optuna's decision with one trial at a time; a whole search of several is in test_study.py."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.halving import Halving

# The values of up to 12 trials at their evaluations; few different ones, so that some are equal.
CURVES = st.lists(st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12), min_size=1, max_size=12)
EVERY = st.sampled_from([1, 2, 5])  # epochs from one evaluation to the next


def one_after_another(halving, curves, every):
    """Trial → the epoch at which it was ended."""
    ended = {}
    for number, curve in enumerate(curves):
        halving.start()
        for index, value in enumerate(curve, start=1):
            halving.report(number, index * every, value)
            if halving.should_stop(number):
                ended[number] = index * every
                break
        halving.end(number)
    return ended


@given(CURVES, EVERY, st.integers(1, 4))
def test_one_after_another_it_decides_as_optuna_does(curves, every, grace):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=grace, reduction_factor=3)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    expected = {}
    for number, curve in enumerate(curves):
        trial = study.ask()
        for index, value in enumerate(curve, start=1):
            trial.report(value, index * every)
            if trial.should_prune():
                expected[number] = index * every
                break
        study.tell(trial, values=0.0)
    assert one_after_another(Halving("a", SearchSpec(scheduler="asha", grace=grace), 99), curves, every) == expected


def test_hyperband_begins_later_in_some_brackets_and_has_more_trials_in_the_first():
    halving = Halving("a", SearchSpec(scheduler="hyperband", grace=2), 18)
    brackets = [halving.bracket(number) for number in range(300)]
    counts = [brackets.count(bracket) for bracket in range(3)]
    assert sum(counts) == 300 and counts[0] > counts[1] > 0 and counts[2] > 0
    assert brackets == [Halving("a", SearchSpec(scheduler="hyperband", grace=2), 18).bracket(n) for n in range(300)]


@pytest.mark.parametrize("scheduler", ["asha", "hyperband"])
def test_a_trial_waits_for_an_earlier_one_only(scheduler):
    halving = Halving("a", SearchSpec(scheduler=scheduler, grace=1), 1)
    for _ in range(2):
        halving.start()
    halving.report(1, 1, 0.5)
    assert halving.should_stop(1) is None and halving.should_stop(1, wait=False) is False
    halving.report(0, 1, 0.9)
    assert halving.should_stop(0) is False
