"""Losses, methods, encoders, readers, protocols and metrics of the package keep their contracts; a new file by existing."""

from pathlib import Path

import pytest

from rankbench.contracts import encoders, losses, metrics, protocols, readers, solvers
from rankbench.contracts.check import NotCheckedError
from rankbench.contracts.parameters import at_the_ends, expect_checked
from rankbench.core.errors import ConfigError
from rankbench.data.prepare import load
from rankbench.data.protocols.spec import protocols as all_protocols
from rankbench.data.readers import readers as all_readers
from rankbench.evaluation.metrics import METRICS
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.method import Iterative
from rankbench.losses.spec import registered as all_losses
from rankbench.models.spec import registered as all_encoders
from rankbench.studies.spec import registered as all_studies
from rankbench.training.methods import Trained
from rankbench.training.params import TrainingParams

LOSSES = all_losses().names()
SOLVERS = [spec.name for spec in registered() if not isinstance(spec, Trained)]  # the others are losses
KINDS = [
    (losses.CONTRACT, all_losses(), LOSSES),
    (solvers.CONTRACT, registered(), SOLVERS),
    *((contract, registry, registry.names()) for contract, registry in (
        (encoders.CONTRACT, all_encoders()), (protocols.CONTRACT, all_protocols()), (metrics.CONTRACT, METRICS),
        (readers.CONTRACT, all_readers()),
    )),
]  # fmt: skip
CASES = {
    f"{contract.kind}-{name}-{check.run.__name__}": (contract.kind, registry, name, check)
    for contract, registry, names in KINDS
    for name in names
    for check in contract.checks
    if check.run.__name__ != "threads_change_nothing"  # test_threads.py shows it of every method, to the bit
}


@pytest.mark.parametrize(("kind", "registry", "name", "check"), CASES.values(), ids=CASES)
@pytest.mark.fault("F13")
def test_it_keeps_the_contract(kind, registry, name, check, figure):
    try:
        check.run(registry.get(name))
    except NotCheckedError as reason:
        pytest.skip(str(reason))
    figure(f"every {kind}: {check.run.__name__.replace('_', ' ')}")


def test_the_contracts_found_what_there_is():
    assert len(LOSSES) >= 28 and len(losses.CONTRACT.checks) >= 12 and len(solvers.CONTRACT.checks) >= 9
    closed_forms = {"ease", "debiased-ease", "edlae", "dlae", "deql", "deql-l2", "deql-l2-zero-diag"}
    assert {"ials", "wrmf", "debiased-ials", "rg2", "rg2-sampled", "rgx", "rgx-paper", "rg-authors"} <= set(SOLVERS)
    assert closed_forms | {"deql-low-rank", "edlae-low-rank"} | {"popularity", "random", "multivae"} <= set(SOLVERS)
    graphs = {"lightgcn", "xsimgcl", "gat", "dgcf", "pinsage", "ngcf", "sgl"}
    assert {"mf", "neumf", "simplex", "youtubenet"} | graphs <= set(all_encoders().names())
    assert all(len(names) >= 3 for *_, names in KINDS)


def shares(method):
    """Whether other settings are said to give the model of the default ones."""
    usual, *others = at_the_ends(method.params)
    return any(method.identity_of(p) == method.identity_of(usual) for p in others)


def test_few_are_excused():
    """A check that is skipped for most would show nothing."""
    assert {name for name in SOLVERS if registered().get(name).draws_users} == {"random", "rg2-newton-mlp", "multivae"}
    assert sum(isinstance(registered().get(name), Iterative) for name in SOLVERS) >= 8
    assert len([*filter(shares, map(registered().get, SOLVERS))]) >= 5
    assert sum(loss.over_catalogue for loss in all_losses()) >= 4
    assert sum(any(loss.twin(p) for p in at_the_ends(loss.params)) for loss in all_losses()) >= 4


@pytest.mark.parametrize(
    "cls", dict.fromkeys([TrainingParams, *(study.params for study in all_studies())]), ids=lambda cls: cls.__name__
)
def test_the_bounds_of_what_is_no_method_are_checked(cls):
    expect_checked(cls, cls.__name__)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_a_worked_number_of_its_paper_and_parameters_that_say_what_they_are(name):
    text = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "losses").glob("test_*.py"))
    assert f'worked("{name}")' in text, f"no test in tests/losses is marked worked({name!r})"
    for field in configure(name, {}).spec.fields():
        assert field.metadata["help"] and field.metadata["search"], field.name


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_trains_on_every_encoder(name):
    for encoder in all_encoders():
        losses.trains_on(all_losses().get(name), encoder)


def test_a_wrong_parameter_or_encoder_is_refused_with_the_nearest_name():
    for method in map(registered().get, ("ease", "ials", "bpr", "multivae")):  # one of each way to declare them
        for name in (field.name for field in method.fields()):
            with pytest.raises(ConfigError, match=rf"{method.name}: unknown parameter '{name}x'; did you mean {name}\?"):
                configure(method.name, {f"{name}x": 1})
    with pytest.raises(ConfigError, match="model mf has no parameter 'n_layers'"):
        configure("bpr", {"n_layers": 1})
    with pytest.raises(ConfigError, match="did you mean lightgcn"):
        configure("bpr", {"model": "lightgnc"})


@pytest.mark.mirror
@pytest.mark.parametrize("method", ["ease", "edlae", "deql-l2"])
def test_float32_measures_what_float64_measures_on_real_data(method, mirror_environment):
    split = load("movielens-1m", mirror_environment).split
    X, holdout = split.fit_matrix("train+valid"), split.holdout("test", "train+valid")
    single, double = (solvers.means(method, X, holdout, dtype) for dtype in ("float32", "float64"))
    assert single == pytest.approx(double, abs=1e-4)
