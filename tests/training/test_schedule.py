"""Learning rates over epochs; a plateau against PyTorch's own, told to count every rise as a gain."""

import json

import numpy as np
import pytest
import torch
from fits import driven, interactions, params
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError
from rankbench.training.schedule import LOWEST, WAIT, Schedule
from rankbench.training.trainer import Trainer


def test_a_constant_rate_stays_whatever_is_seen():
    schedule = Schedule("constant", 0.1, 50)
    factors = []
    for epoch in range(1, 51):
        factors.append(schedule.factor(epoch))
        schedule.observe(-float(epoch))
    assert factors == [1.0] * 50


@pytest.mark.parametrize("epochs", [1, 2, 9, 10])
def test_a_cosine_falls_from_one_towards_zero(epochs):
    factors = [Schedule("cosine", 0.1, epochs).factor(epoch) for epoch in range(1, epochs + 2)]
    assert factors[0] == 1
    assert factors[-1] == pytest.approx(0, abs=1e-15)  # of the epoch after the last
    assert (np.diff(factors) < 0).all()
    # As much above a half in the beginning as below it at the end.
    np.testing.assert_allclose(np.add(factors, factors[::-1]), 1, atol=1e-12)


@pytest.mark.parametrize(("epochs", "whole"), [(37, 27), (4, 3), (1, 0)])
def test_a_rate_drops_to_a_tenth_in_the_last_quarter_of_the_epochs(epochs, whole):
    factors = [Schedule("drop", 0.1, epochs).factor(epoch) for epoch in range(1, epochs + 1)]
    assert factors == [1.0] * whole + [0.1] * (epochs - whole)


def theirs(rate, values):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=WAIT, threshold=0, threshold_mode="abs", min_lr=LOWEST, eps=0
    )
    for value in values:
        schedule.step(value)
        yield optimizer.param_groups[0]["lr"]


@given(
    rate=st.sampled_from([0.1, 3e-6, 1.5e-6]),
    values=st.lists(st.integers(0, 6).map(lambda value: value / 7), min_size=1, max_size=60),
)
def test_a_plateau_halves_as_torch_does_down_to_the_floor(rate, values):
    schedule = Schedule("plateau", rate, len(values))
    for epoch, (value, expected) in enumerate(zip(values, theirs(rate, values), strict=True), 1):
        schedule.observe(value)
        assert rate * schedule.factor(epoch) == pytest.approx(expected, rel=1e-12)


def test_a_rate_below_the_floor_is_not_raised_to_it():
    schedule = Schedule("plateau", 1e-8, 100)
    for _ in range(50):
        schedule.observe(0.0)
    assert schedule.factor(51) == 1


@given(values=st.lists(st.floats(0, 1), max_size=12), more=st.lists(st.floats(0, 1), max_size=12))
def test_what_it_remembers_goes_through_json(values, more):
    first, second = Schedule("plateau", 0.1, 30), Schedule("plateau", 0.1, 30)
    for value in values:
        first.observe(value)
    second.restore(json.loads(json.dumps(first.values(), allow_nan=False)))
    for epoch, value in enumerate(more, 1):
        assert first.factor(epoch) == second.factor(epoch)
        first.observe(value), second.observe(value)
    assert first.factor(30) == second.factor(30)


def test_a_cosine_falls_in_every_step_and_a_warm_up_rises_in_every_step():
    schedule = Schedule("cosine", 0.1, 4, warmup=1.5)
    factors = [schedule.factor(epoch, step, 10) for epoch in (1, 2, 3, 4) for step in range(10)]
    plain = [Schedule("cosine", 0.1, 4).factor(epoch, step, 10) for epoch in (1, 2, 3, 4) for step in range(10)]
    assert (np.diff(plain) < 0).all()
    rise = np.minimum(1, np.arange(1, 41) / 15)
    np.testing.assert_allclose(factors, rise * plain, rtol=1e-12)


@pytest.mark.parametrize("patience", range(1, WAIT + 2))
def test_a_plateau_that_patience_ends_before_it_slows_the_fit_is_refused(patience):
    with pytest.raises(ConfigError, match=rf"after 4 evaluations .*patience={patience} ends the fit before: use patience >= 5"):
        params("bpr", schedule="plateau", patience=patience)
    for enough in (0, WAIT + 2):
        assert params("bpr", schedule="plateau", patience=enough).training.patience == enough


def test_a_plateau_ends_when_the_rate_is_down_to_its_floor():
    schedule, epochs = Schedule("plateau", 1e-5, 1000), 0
    while not schedule.ended:
        schedule.observe(0.5)
        epochs += 1
    assert schedule.learning_rate * schedule.factor(epochs) == LOWEST
    assert epochs == 1 + 4 * (WAIT + 1)  # 1e-5 is halved four times
    assert not Schedule("constant", 1e-7, 10).ended and not Schedule("plateau", 1e-7, 10).ended


def test_the_model_of_a_fit_that_a_plateau_ends_is_computed_before_the_trainer_is_closed(monkeypatch):
    calls = []
    for name in ("model", "close"):
        original = getattr(Trainer, name)
        monkeypatch.setattr(Trainer, name, lambda self, name=name, original=original: (calls.append(name), original(self))[1])
    fit = driven(interactions(), "bpr", schedule="plateau", learning_rate=2e-6, epochs=60)
    assert fit.ended == "converged" and calls[-1] == "close" and calls.count("close") == 1
