"""A search has as many different settings as it has trials, or all that there are."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.schema.space import expand
from rankbench.sweeps.search.random_draws import distinct_settings


@pytest.mark.parametrize("trials", [3, 8, 24])
def test_draws_are_different(trials):
    space = {"lam": {"choice": [0, 1, 2, 3, 4, 5]}, "alpha": {"choice": [1, 2, 3, 4, 5]}, "iterations": 20}
    found = distinct_settings(space, trials, 0, "here")
    assert len(found) == trials and all(found.count(each) == 1 and each["iterations"] == 20 for each in found)
    assert found == distinct_settings(space, trials, 0, "here")
    assert found != distinct_settings(space, trials, 1, "here")


def test_a_small_range_is_tried_completely_and_a_value_that_is_listed_twice_once():
    assert distinct_settings({"lam": {"choice": [1, 2, 2]}}, 3, 0, "here") == [{"lam": 1}, {"lam": 2}]
    found = distinct_settings({"lam": {"choice": [1, 2, 3]}, "p": {"grid": [0.1, 0.5]}}, 24, 0, "here")
    assert sorted((each["lam"], each["p"]) for each in found) == [(lam, p) for lam in (1, 2, 3) for p in (0.1, 0.5)]


def test_grids_are_run_completely_and_intervals_are_drawn():
    assert len(distinct_settings({"lam": {"grid": [1, 2, 3, 4]}}, 2, 0, "here")) == 4
    draws = {"lam": {"loguniform": [0.1, 10]}}
    found = distinct_settings(draws, 5, 0, "here")
    assert len({each["lam"] for each in found}) == 5 and all(0.1 <= each["lam"] <= 10 for each in found)
    crossed = distinct_settings({"p": {"grid": [0.1, 0.5, 0.9]}, **draws, "b": 2}, 5, 0, "here")
    assert [each["lam"] for each in crossed] == [each["lam"] for each in found for _ in range(3)]
    assert {tuple(each) for each in crossed} == {("p", "lam", "b")} and {each["p"] for each in crossed} == {0.1, 0.5, 0.9}


def test_the_first_draws_are_those_of_the_space():
    space = {"lam": {"choice": [0, 1, 2, 3]}, "alpha": {"choice": [1, 2, 3]}}
    drawn = expand(space, 8, 0, "here")
    first = [each for position, each in enumerate(drawn) if each not in drawn[:position]]
    assert 0 < len(first) < 8
    assert distinct_settings(space, 8, 0, "here")[: len(first)] == first


def test_too_many_settings_are_refused_before_they_are_drawn():
    with pytest.raises(ConfigError, match="here: 200,000 settings"):
        distinct_settings({"p": {"grid": [0.1, 0.5]}, "lam": {"choice": [1, 2]}}, 100_000, 0, "here")
