"""Every registered solver keeps the contract of solvers; a new file in solvers/ is held to it by existing."""

import pytest

from rankbench.contracts.check import NotCheckedError
from rankbench.contracts.solvers import CONTRACT, means
from rankbench.core.errors import ConfigError
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.method import Iterative
from rankbench.training.methods import Trained

METHODS = [spec.name for spec in registered() if not isinstance(spec, Trained)]  # those have a contract of their own
# What test_threads.py shows of every method to the bit is left out.
CHECKS = [check for check in CONTRACT.checks if check.run.__name__ != "threads_change_nothing"]


def test_the_contract_found_the_methods():
    closed_forms = {"ease", "debiased-ease", "edlae", "dlae", "deql", "deql-l2", "deql-l2-zero-diag"}
    assert {"ials", "wrmf", "debiased-ials", "rg2", "rg2-sampled", "rgx", "rgx-paper", "rg-authors"} <= set(METHODS)
    assert closed_forms | {"deql-low-rank", "edlae-low-rank"} | {"popularity", "random", "multivae"} <= set(METHODS)
    assert len(CHECKS) >= 9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.run.__name__)
@pytest.mark.fault("F13")
def test_a_solver_keeps_the_contract(method, check, figure):
    try:
        check.run(registered().get(method))
    except NotCheckedError as reason:
        pytest.skip(str(reason))
    figure(f"every solver: {check.run.__name__.replace('_', ' ')}")


def test_few_methods_are_excused():
    """A check that is skipped for most would show nothing."""
    assert {name for name in METHODS if registered().get(name).draws_users} == {"random", "rg2-newton-mlp", "multivae"}
    assert sum(isinstance(registered().get(name), Iterative) for name in METHODS) >= 8


def test_a_misspelt_or_unknown_parameter_is_refused_with_the_nearest_name():
    for method in map(registered().get, ("ease", "ials", "bpr", "multivae")):  # one of each way to declare them
        for name in (field.name for field in method.fields()):
            with pytest.raises(ConfigError, match=rf"{method.name}: unknown parameter '{name}x'; did you mean {name}\?"):
                configure(method.name, {f"{name}x": 1})
        with pytest.raises(ConfigError, match=f"{method.name}: unknown parameter 'zzz'"):
            configure(method.name, {"zzz": 1})


@pytest.mark.mirror
@pytest.mark.parametrize("method", ["ease", "edlae", "deql-l2"])
def test_float32_measures_what_float64_measures_on_real_data(method, movielens_1m):
    X, holdout = movielens_1m
    assert means(method, X, holdout, "float32") == pytest.approx(means(method, X, holdout, "float64"), abs=1e-4)


@pytest.fixture
def movielens_1m(mirror_environment):
    split = load("movielens-1m", mirror_environment).split
    return split.fit_matrix("train+valid"), split.holdout("test", "train+valid")
