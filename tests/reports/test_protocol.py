"""Deviations from a paper's protocol are found by comparing each run with the experiment's `protocol`."""

from dataclasses import replace

from rankbench.core.config import validate
from rankbench.reports.deviations import protocol_deviations
from rankbench.reports.names import listed
from rankbench.reports.tables import Row
from rankbench.schema.experiment import ExperimentSpec


def spec(**changes):
    content = {
        "name": "x",
        "datasets": ["synthetic"],
        "arms": [
            {"name": "A", "method": "sl", "params": {"epochs": 12, "tau": {"choice": [0.1, 0.2]}}},
            {"name": "B", "method": "bpr", "params": {"epochs": 200}, "protocol": {"n_negatives": 1}},
            {"name": "C", "method": "ease"},
        ],
        "protocol": {"params": {"optimizer": "adam", "epochs": 200, "n_negatives": 100, "tau": 0.3}, "trials": 20},
    }
    return validate(ExperimentSpec, content | changes, "x.yaml")


def row(arm, chosen_of=20, **params):
    empty = Row("synthetic", arm, "sl", params, {}, {}, 1, 0.0, 0)
    return replace(empty, chosen_of=chosen_of)


TRAINED = {"optimizer": "adam", "epochs": 7, "n_negatives": 100, "tau": 0.1}


def test_a_run_as_in_the_paper_deviates_in_nothing():
    rows = [row("A", **TRAINED), row("B", **TRAINED | {"n_negatives": 1, "tau": 0.3}), row("C", chosen_of=20, lam=3)]
    content = spec().model_dump(mode="json")
    content["arms"][0]["params"]["epochs"] = 200
    assert protocol_deviations(validate(ExperimentSpec, content, "x.yaml"), rows) == []


def test_every_difference_is_named_with_both_values_and_the_arms():
    rows = [
        row("A", chosen_of=3, **TRAINED | {"optimizer": "row-adam"}),
        row("B", chosen_of=4, **TRAINED | {"optimizer": "row-adam"}),
        row("C", chosen_of=5, lam=3),
    ]
    assert protocol_deviations(spec(), rows) == [
        "all arms with this parameter: optimizer row-adam, where the paper has adam",
        "A: epochs 12, where the paper has 200",
        "B: n_negatives 100, where the paper has 1",
        "B: tau 0.1, where the paper has 0.3",
        "all arms: 3 to 5 settings tried, where the paper tries 20",
    ]


def test_without_a_protocol_nothing_is_compared():
    assert protocol_deviations(spec(protocol={}), [row("A", chosen_of=1, **TRAINED)]) == []


def test_rows_are_told_apart_where_their_names_contain_commas():
    rows = [row("A, MF", **TRAINED), row("B, MF", **TRAINED), row("C", lam=3)]
    content = spec().model_dump(mode="json")
    for arm, name in zip(content["arms"], ("A, MF", "B, MF", "C"), strict=True):
        arm["name"] = name
        arm["params"].pop("epochs", None)
    told = protocol_deviations(validate(ExperimentSpec, content, "x.yaml"), rows)
    assert "all arms with this parameter: epochs 7, where the paper has 200" in told
    assert listed(["A, MF", "C"]) == "A, MF; C" and listed(["A", "C"]) == "A, C" and listed(["A, MF"]) == "A, MF"
