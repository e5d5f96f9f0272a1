"""What users of MLflow choose by its variables and by options, and what is refused before a fit."""

import getpass

import pytest

from rankbench.core.errors import ConfigError
from rankbench.tracking.labels import Labels


def labels(environ=None, **options):
    return Labels.from_env(environ=environ or {}, **options)


def test_without_choices_only_the_user_and_the_source_are_known():
    chosen = labels(source="experiments/demo.yaml")
    own = {"mlflow.user": getpass.getuser(), "mlflow.source.name": "experiments/demo.yaml", "mlflow.source.type": "LOCAL"}
    assert chosen == Labels(tags=own)


def test_the_variables_of_mlflow_are_honoured():
    chosen = labels({
        "MLFLOW_EXPERIMENT_NAME": "mine", "MLFLOW_EXPERIMENT_ID": "7", "MLFLOW_RUN_ID": "0a1b" * 8,
        "MLFLOW_RUN_CONTEXT": '{"team": "search", "try": 2}', "MLFLOW_TRACKING_USERNAME": "ada",
    })  # fmt: skip
    assert (chosen.experiment, chosen.experiment_id, chosen.parent) == ("mine", "7", "0a1b" * 8)
    assert chosen.tags == {"team": "search", "try": "2", "mlflow.user": "ada"}


def test_an_option_wins_over_a_variable():
    chosen = labels(
        {"MLFLOW_RUN_CONTEXT": '{"team": "search"}'}, tags=["team=ads", "note=a = b", "mlflow.user=bob"], name=" x "
    )
    assert chosen.tags == {"team": "ads", "note": "a = b", "mlflow.user": "bob"}
    assert chosen.name == "x"


@pytest.mark.parametrize(
    ("environ", "options", "message"),
    [
        ({"MLFLOW_RUN_ID": "../x"}, {}, "MLFLOW_RUN_ID=../x: not the id"),
        ({"MLFLOW_RUN_CONTEXT": "{team"}, {}, "MLFLOW_RUN_CONTEXT: not JSON"),
        ({"MLFLOW_RUN_CONTEXT": "[1]"}, {}, "MLFLOW_RUN_CONTEXT: expected a JSON object"),
        ({}, {"tags": ["team"]}, "--tag team: expected KEY=VALUE"),
        ({}, {"tags": ["te?m=1"]}, "--tag te.m=1: a tag's name"),
        ({}, {"tags": ["=1"]}, "--tag =1: a tag's name"),
        ({}, {"tags": ["mlflow.parentRunId=1"]}, "set by --run-name and MLFLOW_RUN_ID"),
        ({}, {"tags": ["rankbench.run=1"]}, "set by rankbench itself"),
        ({}, {"tags": ["a=" + "x" * 5001]}, "too long"),
        ({}, {"name": "  "}, "--run-name: expected 1 to 200"),
    ],
)
def test_what_mlflow_would_refuse_is_refused_with_its_source(environ, options, message):
    with pytest.raises(ConfigError, match=message) as error:
        labels(environ, **options)
    assert "\n" not in str(error.value)
