"""Search spaces: grids are crossed, draws are seeded, independent of what else is searched, and different in a search."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError
from rankbench.schema.space import expand


def settings_of(space, trials=5, seed=0, distinct=False):
    return expand(space, trials, seed, "x.yaml: arms[0].params", distinct)


@given(
    lam=st.lists(st.integers(1, 100), min_size=1, max_size=4, unique=True),
    p=st.lists(st.floats(0.1, 0.9), min_size=1, max_size=4, unique=True),
)
def test_grids_are_crossed_and_fixed_values_kept(lam, p):
    found = settings_of({"lam": {"grid": lam}, "a": 1.0, "p": {"grid": p}})
    assert {(s["lam"], s["p"]) for s in found} == set(itertools.product(lam, p))
    assert len(found) == len(lam) * len(p)
    assert all(list(s) == ["lam", "a", "p"] and s["a"] == 1.0 for s in found)


def test_random_draws_are_crossed_with_grids():
    found = settings_of({"lam": {"loguniform": [1, 100]}, "b": {"grid": [0.5, 1.0]}}, trials=7)
    assert len(found) == 14
    assert len({s["lam"] for s in found}) == 7
    assert all(1 <= s["lam"] <= 100 for s in found)


def test_a_parameters_draws_do_not_depend_on_the_other_parameters():
    alone = [s["lam"] for s in settings_of({"lam": {"uniform": [0, 1]}})]
    beside = [s["lam"] for s in settings_of({"p": {"uniform": [0, 1]}, "lam": {"uniform": [0, 1]}})]
    assert alone == beside
    assert alone != [s["lam"] for s in settings_of({"lam": {"uniform": [0, 1]}}, seed=1)]


def test_loguniform_is_uniform_in_the_logarithm():
    draws = [s["lam"] for s in settings_of({"lam": {"loguniform": [1, 10_000]}}, trials=4000)]
    below = sum(x < 100 for x in draws) / len(draws)
    assert 0.46 < below < 0.54  # five standard deviations of a fair coin thrown 4,000 times


def test_randint_leaves_out_its_upper_bound_and_choice_takes_only_what_is_listed():
    draws = settings_of({"k": {"randint": [2, 4]}, "form": {"choice": ["a", "b"]}}, trials=200)
    assert {s["k"] for s in draws} == {2, 3}
    assert {s["form"] for s in draws} == {"a", "b"}


@pytest.mark.parametrize("trials", [3, 8, 24])
def test_draws_are_different(trials):
    space = {"lam": {"choice": [0, 1, 2, 3, 4, 5]}, "alpha": {"choice": [1, 2, 3, 4, 5]}, "iterations": 20}
    found = settings_of(space, trials, distinct=True)
    assert len(found) == trials and all(found.count(each) == 1 and each["iterations"] == 20 for each in found)
    assert found == settings_of(space, trials, distinct=True)
    assert found != settings_of(space, trials, seed=1, distinct=True)


def test_a_small_range_is_tried_completely_and_a_value_that_is_listed_twice_once():
    assert settings_of({"lam": {"choice": [1, 2, 2]}}, 3, distinct=True) == [{"lam": 1}, {"lam": 2}]
    found = settings_of({"lam": {"choice": [1, 2, 3]}, "p": {"grid": [0.1, 0.5]}}, 24, distinct=True)
    assert sorted((each["lam"], each["p"]) for each in found) == [(lam, p) for lam in (1, 2, 3) for p in (0.1, 0.5)]


def test_different_draws_are_crossed_with_grids_and_intervals_are_drawn():
    assert len(settings_of({"lam": {"grid": [1, 2, 3, 4]}}, 2, distinct=True)) == 4
    draws = {"lam": {"loguniform": [0.1, 10]}}
    found = settings_of(draws, distinct=True)
    assert len({each["lam"] for each in found}) == 5 and all(0.1 <= each["lam"] <= 10 for each in found)
    crossed = settings_of({"p": {"grid": [0.1, 0.5, 0.9]}, **draws, "b": 2}, distinct=True)
    assert [each["lam"] for each in crossed] == [each["lam"] for each in found for _ in range(3)]
    assert {tuple(each) for each in crossed} == {("p", "lam", "b")} and {each["p"] for each in crossed} == {0.1, 0.5, 0.9}


def test_the_first_of_different_draws_are_those_that_are_drawn():
    space = {"lam": {"choice": [0, 1, 2, 3]}, "alpha": {"choice": [1, 2, 3]}}
    drawn = settings_of(space, 8)
    first = [each for position, each in enumerate(drawn) if each not in drawn[:position]]
    assert 0 < len(first) < 8
    assert settings_of(space, 8, distinct=True)[: len(first)] == first


def test_too_many_settings_are_refused_before_they_are_drawn():
    with pytest.raises(ConfigError, match=r"arms\[0\]\.params: 200,000 settings"):
        settings_of({"p": {"grid": [0.1, 0.5]}, "lam": {"choice": [1, 2]}}, 100_000, distinct=True)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lam": {"gird": [1]}}, r"arms\[0\]\.params\.lam: unknown search 'gird'; did you mean grid\?"),
        ({"lam": {"grid": []}}, r"lam\.grid: expected a list"),
        ({"lam": {"grid": 3}}, r"lam\.grid: expected a list"),
        ({"lam": {"uniform": [3, 1]}}, r"lam\.uniform: expected \[low, high\]"),
        ({"k": {"randint": [1.5, 3]}}, r"k\.randint: expected whole numbers, got \[1\.5, 3\]"),
        ({"lam": {"loguniform": [0, 1]}}, r"lam\.loguniform: low must be > 0"),
        ({"lam": {"uniform": ["a", "b"]}}, r"lam\.uniform: expected \[low, high\]"),
        ({"lam": {"uniform": [0, float("inf")]}}, r"lam\.uniform: expected \[low, high\]"),
        ({"lam": {"grid": [1], "choice": [2]}}, r"lam: expected one of .*, found grid, choice"),
        ({"lam": {1: [1], "b": [2]}}, r"lam: expected one of .*, found 1, b"),
        ({"lam": {}}, r"lam: expected one of .*, found nothing"),
        ({name: {"grid": [*range(10_000)]} for name in "abc"}, r"arms\[0\]\.params: 1,000,000,000,000 settings, where"),
    ],
)
def test_a_wrong_space_is_one_line_that_names_the_parameter(space, message):
    with pytest.raises(ConfigError, match=message):
        settings_of(space)
