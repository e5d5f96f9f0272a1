"""A rate that is too high is named with its value: a loss that is not finite is an error, one that grows is a warning."""

import math

import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.core.errors import NumericalError
from rankbench.experiment.fit_warnings import divergence, rate_is_named

pytestmark = pytest.mark.usefixtures("home")

TINY = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]


def curve(*losses):
    return [{"iteration": number, "loss": loss} for number, loss in enumerate(losses, start=1)]


@pytest.mark.parametrize(
    ("losses", "warns"),
    [
        ([1.0, 0.9, 0.8, 0.7, 0.6], False),
        ([1.0, 2.0, 3.0, 4.0, 5.0], True),
        ([1.0, 5.0, 3.0, 0.9, 0.8], False),  # it came down again
        ([1.0, 1.01, 1.02, 1.03, 1.04], False),  # noise
        ([-5.0, -4.0, -3.0, -2.0, -1.0], True),
        ([-1.0, -2.0, -3.0, -4.0, -5.0], False),
        ([1.0, 9.0, 9.0], False),  # too short to tell
        ([math.nan, 1.0, 2.0, 3.0, 4.0], True),
    ],
)
def test_a_loss_that_grows(losses, warns):
    assert divergence(curve(*losses), {"lam": 3}) is None
    sentence = divergence(curve(*losses), {"learning_rate": 0.5})
    assert bool(sentence) is warns
    if warns:
        assert "learning_rate=0.5 may be too high; try learning_rate=0.05" in sentence


def test_scores_that_are_no_numbers_begin_with_the_rate_of_a_method_that_has_one():
    """Whether loss or scores show it first depends on the order in which a processor adds up."""
    with pytest.raises(NumericalError) as caught, rate_is_named({"learning_rate": 1e30}):
        raise NumericalError("FactorRecommender: a score is not a number; raise lam, or use float64")
    expected = "FactorRecommender: a score is not a number: learning_rate=1e+30 is probably too high; try learning_rate=1e+29"
    assert str(caught.value) == expected
    with pytest.raises(NumericalError, match="raise lam"), rate_is_named({"lam": 3}):
        raise NumericalError("FactorRecommender: a score is not a number; raise lam, or use float64")


def test_a_fit_names_the_rate_as_a_run_does(environment, monkeypatch):
    def broken(self, model, metric):
        raise NumericalError("FactorRecommender: a score is not a number; use float64")

    monkeypatch.setattr("rankbench.experiment.watch.ValidationSet.__call__", broken)
    with pytest.raises(NumericalError, match=r"a score is not a number: learning_rate=0\.5 is probably too high"):
        rb.fit("synthetic", "bpr", environment=environment, progress=False, learning_rate=0.5, epochs=1, n_negatives=1)


def test_a_run_warns_of_a_loss_that_grows_and_ends_at_one_that_is_not_finite(capsys):
    def said(rate, code):
        assert _main(["run", "synthetic", "mse", *TINY, f"learning_rate={rate}", "epochs=8", "--no-track"]) == code
        return capsys.readouterr().err

    grows, ends = said(30, 0), said("1e30", 3)
    assert "warning: the loss rose from" in grows and "learning_rate=30 may be too high" in grows
    assert "learning_rate=1e+30 is probably too high; try learning_rate=1e+29" in ends and ends.count("\n") == 1
    assert "warning" not in said(0.01, 0)
