"""A part of a method that begins after the epoch of the measured model is named."""

import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.experiment.fit_warnings import unstarted
from rankbench.experiment.methods import registered

TINY = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]


@pytest.mark.parametrize(
    ("method", "params", "iterations", "says"),
    [
        ("sl-at-k", {"objective": "sampled", "T_beta": 20}, 19, "T_beta=20, but the model is that of epoch 19"),
        ("sl-at-k", {"objective": "sampled", "T_beta": 20}, 20, None),
        ("sl-at-k", {"objective": "catalogue", "T_beta": 20}, 5, None),  # its thresholds are those of every step
        ("advinfonce", {"objective": "sampled", "T_adv": 5}, 4, "it never met a trained adversary"),
        ("advinfonce", {"objective": "catalogue", "T_adv": 5}, 5, "it never met a trained adversary"),  # it rested in epoch 5
        ("advinfonce", {"objective": "catalogue", "T_adv": 5}, 6, None),
        ("sl-at-k", {"objective": "sampled"}, 1, None),  # a record of before the parameter
        ("sl", {"objective": "sampled"}, 1, None),
        ("ease", {"lam": 3.0}, None, None),
    ],
)
def test_what_has_not_begun_is_said(method, params, iterations, says):
    sentence = unstarted(method, params, iterations)
    assert sentence is None if says is None else says in sentence


def test_what_may_be_late_is_the_number_of_an_epoch():
    late = [field for each in registered() for field in each.fields() if field.metadata.get("late")]
    assert {field.name for field in late} == {"T_beta", "T_adv"}
    assert all(field.type in (int, "int") and set(field.metadata["late"]) <= {"sampled", "catalogue"} for field in late)


def test_a_run_says_it_once_it_has_ended(home, capsys):
    def said(epochs):
        words = ["run", "synthetic", "sl-at-k", *TINY, f"epochs={epochs}", "T_beta=3", "patience=0", "--no-track"]
        assert _main(words) == 0
        return capsys.readouterr().err

    warning = "T_beta=3, but the model is that of epoch 2: its thresholds were never updated"
    assert f"warning: {warning}" in said(2) and "T_beta" not in said(3)


def test_a_model_that_is_kept_says_it_too(environment, caplog):
    rb.fit("synthetic", "sl-at-k", environment=environment, progress=False, epochs=2, T_beta=3, patience=0)
    said = [each.message for each in caplog.records if each.name == "rankbench.api.fit"]
    assert said == ["T_beta=3, but the model is that of epoch 2: its thresholds were never updated"]
