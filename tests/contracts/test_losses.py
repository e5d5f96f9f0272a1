"""Every registered loss keeps the contract of losses, alone and trained with every encoder; a new file is held to it."""

from pathlib import Path

import pytest

from rankbench.contracts.check import NotCheckedError
from rankbench.contracts.losses import CONTRACT, at_the_ends, trains_on
from rankbench.core.errors import ConfigError
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered
from rankbench.models.spec import registered as encoders

LOSSES = [loss.name for loss in registered()]
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)
DECLARED = ("over_catalogue", "twin")  # checks of what only some losses declare


def test_the_contract_found_the_losses_and_the_encoders():
    assert len(LOSSES) >= 28
    graphs = {"lightgcn", "xsimgcl", "gat", "dgcf", "pinsage", "ngcf", "sgl"}
    assert {"mf", "neumf", "simplex", "youtubenet"} | graphs <= set(encoders().names())
    assert len(CONTRACT.checks) >= 12


@EVERY_LOSS
def test_a_worked_number_of_its_paper_is_reproduced_somewhere(name):
    text = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "losses").glob("test_*.py"))
    assert f'worked("{name}")' in text, f"no test in tests/losses is marked worked({name!r})"


@EVERY_LOSS
@pytest.mark.parametrize("check", CONTRACT.checks, ids=lambda check: check.run.__name__)
@pytest.mark.fault("F13")
def test_a_loss_keeps_the_contract(name, check, figure):
    try:
        check.run(registered().get(name))
    except NotCheckedError as reason:
        pytest.skip(str(reason))
    figure(f"every loss: {check.run.__name__.replace('_', ' ')}")


@pytest.mark.slow
@EVERY_LOSS
def test_a_loss_trains_on_every_encoder(name):
    for encoder in encoders():
        trains_on(registered().get(name), encoder)


def test_what_losses_declare_is_checked_for_those_that_declare_it():
    for check in CONTRACT.checks:
        if not any(f"`{word}`" in check.name for word in DECLARED):
            continue
        assert sum(declares(loss, check) for loss in registered()) >= 4, check.name


def declares(loss, check):
    if "`twin`" not in check.name:
        return loss.over_catalogue
    return any(loss.twin(p) for p in at_the_ends(loss.params))


@EVERY_LOSS
def test_parameters_of_a_method_say_what_they_are(name):
    for field in configure(name, {}).spec.fields():
        assert field.metadata["help"] and field.metadata["search"], field.name


def test_a_parameter_of_another_encoder_is_refused():
    with pytest.raises(ConfigError, match="model mf has no parameter 'n_layers'"):
        configure("bpr", {"n_layers": 1})


def test_an_unknown_encoder_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean lightgcn"):
        configure("bpr", {"model": "lightgnc"})
