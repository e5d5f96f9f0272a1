"""What a user is told of a fit: a part of its method that never began, and what was given and had no effect."""

from contextlib import suppress

import numpy as np
import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.contracts import solvers
from rankbench.core.errors import ConfigError
from rankbench.experiment.fit_warnings import own_type, unread, unstarted
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.experiment.ranges import space_of
from rankbench.fitting.method import Iterative
from rankbench.schema.space import expand

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


def test_a_given_parameter_that_is_not_read_is_said(home, capsys, caplog):
    assert _main(["run", "synthetic", "softmax", *TINY, "epochs=1", "n_negatives=5", "patience=0", "--no-track"]) == 0
    warning = "n_negatives=5 has no effect: softmax with these parameters does not read it"
    said = capsys.readouterr()
    assert f"warning: {warning}" in said.err and said.err.count("has no effect") == 1 and "n_negatives" not in said.out
    rb.fit("synthetic", "itemknn", progress=False, beta=0.3)
    said = [each.message for each in caplog.records if each.name == "rankbench.api.fit"]
    assert said == ["beta=0.3 has no effect: itemknn with these parameters does not read it"]
    of_another = unread(configure("bpr", {"n_layers": 3}), ["n_layers"])  # its default, without model=lightgcn
    assert of_another == ["n_layers=3 has no effect: bpr with these parameters does not read it"]
    assert unread(configure("rg2", {"solver": "cg", "lam": 0.1}), ["solver", "lam"]) == [
        "solver=cg has no effect: one decomposition solves all rows of a side exactly, whatever the solver"
    ]


@pytest.mark.parametrize("each", registered(), ids=lambda each: each.name)
def test_what_is_not_read_changes_nothing_if_it_is_left_out(each):
    """A fit of what won a sweep is given what it reads alone."""
    for values in ({}, *expand(space, 20, 0, each.name)) if (space := space_of(configure(each.name, {}))) else ({},):
        with suppress(ConfigError):
            config = configure(each.name, values)
            read = {name: config.flat[name] for name in config.used}
            alone = configure(each.name, read)
            assert {name: alone.flat[name] for name in alone.used} == read


def test_a_type_that_a_method_does_not_use_is_said(home, capsys):
    words = ["run", "synthetic", "itemknn", *TINY, "--dtype", "float64", "--no-track"]
    assert _main(words) == 0
    assert "warning: dtype=float64 has no effect: itemknn computes in a type of its own" in capsys.readouterr().err
    assert own_type("itemknn", "float32") is None


@pytest.mark.parametrize("method", [each.name for each in registered() if not isinstance(each, Iterative)])
def test_it_is_said_of_the_methods_that_fit_the_same_bits(method):
    X, _ = solvers.data()
    one, other = (solvers.scores(solvers.fit(method, X, dtype), X) for dtype in ("float32", "float64"))
    same = one.dtype == other.dtype and np.array_equal(one, other)
    assert (own_type(method, "float64") is not None) == same


def test_a_model_that_is_kept_says_it_too(environment, caplog):
    rb.fit("synthetic", "sl-at-k", environment=environment, progress=False, epochs=2, T_beta=3, patience=0)
    said = [each.message for each in caplog.records if each.name == "rankbench.api.fit"]
    assert said == ["T_beta=3, but the model is that of epoch 2: its thresholds were never updated"]
