"""What the estimates of time and memory need of a method stands in the method's own file, and is true."""

import ast
import inspect

import pytest

from rankbench.experiment.methods import registered
from rankbench.losses.spec import registered as losses
from rankbench.models.spec import registered as encoders
from rankbench.sweeps import estimate
from rankbench.training.methods import Trained


def test_the_estimates_name_no_method_loss_or_encoder():
    names = {*registered().names(), *losses().names(), *encoders().names()}
    assert {"rg2", "sparsemax", "mf"} <= names
    written = {node.value for node in ast.walk(ast.parse(inspect.getsource(estimate))) if isinstance(node, ast.Constant)}
    assert not names & {value for value in written if isinstance(value, str)}


@pytest.mark.parametrize("name", registered().names())
def test_the_pace_of_a_method_is_positive_and_that_of_its_loss(name):
    solver = registered().get(name)
    assert 0 < solver.pace < 100
    if isinstance(solver, Trained):
        assert (solver.pace, solver.loss) == (losses().get(name).pace, losses().get(name))
