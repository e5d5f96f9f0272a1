"""What the estimates of time and memory need of a method stands in the method's own file, and is true."""

import ast
import inspect

import pytest

from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment import estimate
from rankbench.experiment.job import Job, configure
from rankbench.experiment.methods import registered
from rankbench.losses.spec import registered as losses
from rankbench.models.spec import registered as encoders
from rankbench.training.methods import Trained


def test_the_estimates_name_no_method_loss_or_encoder():
    names = {*registered().names(), *losses().names(), *encoders().names()}
    assert {"rg2", "sparsemax", "mf"} <= names
    written = {node.value for node in ast.walk(ast.parse(inspect.getsource(estimate))) if isinstance(node, ast.Constant)}
    assert not names & {value for value in written if isinstance(value, str)}


@pytest.mark.parametrize("name", registered().names())
def test_every_method_is_estimated_with_and_without_early_stopping_and_at_the_pace_of_its_loss(name):
    solver, size = registered().get(name), estimate.Size(1000, 500, 20_000, 1e6, 900)
    for values in ({}, {"patience": 2}) if any(field.name == "patience" for field in solver.fields()) else ({},):
        job = Job(load_card("synthetic", Environment.from_env()), (configure(name, values),), metrics=metric_set())
        assert 0 < estimate.seconds(job, size, 1) < 1e4 and 1e8 < estimate.memory(job, size) < 1e11
    assert 0 < solver.pace < 100
    if isinstance(solver, Trained):
        assert (solver.pace, solver.loss) == (losses().get(name).pace, losses().get(name))
