"""Every parameter with bounds is checked: its class is a `Params`, and a subclass that changes a default keeps the bounds."""

import dataclasses

import pytest

from rankbench.core.errors import ConfigError
from rankbench.core.params import Params
from rankbench.experiment.methods import registered
from rankbench.models.spec import registered as encoders
from rankbench.studies.spec import registered as studies
from rankbench.training.methods import Trained
from rankbench.training.params import TrainingParams

METHODS = list(registered())
LOSSES = [method.loss.params for method in METHODS if isinstance(method, Trained)]
SOLVERS = [method.params for method in METHODS if not isinstance(method, Trained)]
CLASSES = {*LOSSES, *SOLVERS, TrainingParams, *(each.params for each in encoders()), *(each.params for each in studies())}


@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__))
def test_every_bound_is_checked(cls):
    for field in _bounded(cls):
        for name, bound in field.metadata["bounds"].items():
            assert issubclass(cls, Params)
            outside = bound if name in ("gt", "lt") else bound - 1 if name == "ge" else bound + 1
            with pytest.raises(ConfigError, match=rf"^{field.name} must "):
                cls(**{field.name: outside})


@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__))
def test_a_new_default_keeps_the_bounds(cls):
    inherited = {field.name for base in cls.__mro__[1:] if dataclasses.is_dataclass(base) for field in _bounded(base)}
    assert inherited <= {field.name for field in _bounded(cls)}


def _bounded(cls):
    return [field for field in dataclasses.fields(cls) if field.metadata.get("bounds")]
