"""Names to specs, and the nearest name to a wrong one."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.core.registry import Registry, nearest


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("tua", ["tau", "surrogate"], "tau"),
        ("gowala", ["gowalla", "amazon-beauty"], "gowalla"),
        ("EASE", ["ease", "edlae"], "ease"),
        # A prefix is a near miss, however short it is against the name.
        ("amazon", ["amazon-beauty-of-the-talos-authors", "gowalla"], "amazon-beauty-of-the-talos-authors"),
        ("rankbench_ofline", ["RANKBENCH_OFFLINE", "RANKBENCH_DATA"], "RANKBENCH_OFFLINE"),
    ],
)
def test_the_nearest_name(name, names, found):
    assert nearest(name, names) == f"; did you mean {found}?"
    assert nearest(name, reversed(names)) == f"; did you mean {found}?"


@pytest.mark.parametrize(("name", "names"), [("zzz", ["tau", "lam"]), ("tau", []), ("", ["tau"])])
def test_no_name_is_near(name, names):
    assert nearest(name, names) == ""


def registry(**specs: int) -> Registry[int]:
    solvers = Registry("solver")
    for name, spec in specs.items():
        solvers.add(name, spec, "rankbench.solvers")
    return solvers


def test_a_registry_gives_what_was_added_in_the_order_of_names():
    solvers = registry(ials=2, ease=1)
    assert (solvers.get("ease"), solvers.get("ials")) == (1, 2)
    assert solvers.names() == ["ease", "ials"]
    assert list(solvers) == [1, 2]
    assert len(solvers) == 2


def test_a_name_is_taken_once():
    solvers = registry(ease=1)
    with pytest.raises(ConfigError, match="solver 'ease' is registered twice"):
        solvers.add("ease", 2, "tests")
    assert solvers.get("ease") == 1


def test_a_miss_names_the_nearest_or_all():
    solvers = registry(ease=1, ials=2)
    with pytest.raises(ConfigError, match=r"unknown solver 'esae'; did you mean ease\?"):
        solvers.get("esae")
    with pytest.raises(ConfigError, match="unknown solver 'xgboost'; known: ease, ials"):
        solvers.get("xgboost")
