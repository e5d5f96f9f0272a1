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
        ("zzz", ["tau", "lam"], ""),
        ("tau", [], ""),
        ("", ["tau"], ""),
    ],
)
def test_the_nearest_name(name, names, found):
    assert nearest(name, names) == nearest(name, reversed(names)) == (f"; did you mean {found}?" if found else "")


def test_a_registry_gives_what_was_added_once_in_the_order_of_names():
    solvers = Registry("solver")
    solvers.add("ials", 2, "rankbench.solvers")
    solvers.add("ease", 1, "rankbench.solvers")
    with pytest.raises(ConfigError, match="solver 'ease' is registered twice"):
        solvers.add("ease", 3, "tests")
    assert (solvers.get("ease"), solvers.get("ials"), len(solvers)) == (1, 2, 2)
    assert solvers.names() == ["ease", "ials"] and list(solvers) == [1, 2]
    with pytest.raises(ConfigError, match=r"unknown solver 'esae'; did you mean ease\?"):
        solvers.get("esae")
    with pytest.raises(ConfigError, match="unknown solver 'xgboost'; known: ease, ials"):
        solvers.get("xgboost")
