"""The conclusion says what was not searched, and which choice lies at the end of its range."""

import pytest
from stored import typed

from rankbench.reports.report import sweep_table


@pytest.fixture
def conclusion(make_run, make_sweep):
    """conclusion(params, **changes of the rows of chosen.json) → the sentences of a sweep of A and B."""

    def make(params, search=(), **row):
        runs = [make_run("final", arm, 0.3, dataset, params={"lam": 10.0}) for dataset in "xy" for arm in "AB"]
        about, chosen, records, compared = make_sweep(runs, {"A": {}, "B": {}}, datasets="xy", params=params)
        about["experiment"]["search"] |= dict(search)
        chosen["rows"] = [each | row for each in chosen["rows"]]
        return sweep_table(*typed(about, chosen, records, compared)).conclusions.sentences

    return make


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({}, "Every model: defaults, nothing searched."),
        ({"lam": 10.0}, "Every model: settings as given, nothing searched."),
        ({"lam": {"grid": [1, 10]}}, None),
    ],
)
def test_what_was_not_searched_is_said(conclusion, params, sentence):
    said = [each for each in conclusion(params) if "nothing searched" in each]
    assert said == ([sentence] if sentence else [])


def test_a_model_without_parameters_has_nothing_to_search(make_run, make_sweep):
    runs = [make_run("final", "A", 0.3), make_run("final", "B", 0.3, params={"lam": 10.0})]
    table = sweep_table(*typed(*make_sweep(runs, {"A": {}, "B": {}})))
    assert "B: defaults, nothing searched." in table.conclusions.sentences


def test_a_value_at_the_end_of_its_range_is_said_with_the_range(conclusion):
    said = conclusion({"lam": {"grid": [1, 1000]}}, ends={"lam": [1, 1000]})
    assert any(
        each.startswith("A: lam is at the end of its range (1 to 1000) on x and y; B: lam is at the end of its range")
        and each.endswith("search.extend=true goes on.")
        for each in said
    )
    extended = conclusion({"lam": {"grid": [1, 1000]}}, search={"extend": True}, ends={"lam": [1, 1e6]})
    assert any("(1 to 1e+06) on x and y." in each for each in extended) and "extend=true" not in " ".join(extended)
