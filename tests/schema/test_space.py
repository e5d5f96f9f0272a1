"""Search spaces: grids are crossed, draws are seeded and independent of what else is searched."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError
from rankbench.schema.space import expand


def settings_of(space, trials=5, seed=0):
    return expand(space, trials, seed, "x.yaml: arms[0].params")


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
