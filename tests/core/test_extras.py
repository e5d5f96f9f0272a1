"""Packages that an extra installs: found without an import, and errors that say how to install them."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rankbench.core import extras
from rankbench.core.errors import ConfigError


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: tuple(Requirement(text).name for text in project["optional-dependencies"][extra]) for extra in extras.EXTRAS
    }
    assert declared == extras.EXTRAS and set(extras.PURPOSES) == set(extras.EXTRAS)
    everything = Requirement(*project["optional-dependencies"]["all"])
    assert everything.name == project["name"] and everything.extras == set(extras.EXTRAS)


@pytest.fixture
def nothing_there(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    extras.installed.cache_clear()
    yield
    extras.installed.cache_clear()


def test_a_missing_package_names_its_extra(nothing_there):
    with pytest.raises(
        ConfigError, match=r"^a sweep needs ray and optuna, which are not installed: pip install 'rankbench\[sweep\]'$"
    ):
        extras.require_extra("sweep", "a sweep")
    error = extras.missing_extra(ModuleNotFoundError("No module named 'sqlalchemy.engine'", name="sqlalchemy.engine"))
    assert str(error) == "this needs mlflow, which is not installed: pip install 'rankbench[tracking]'"


def test_other_errors_are_not_about_extras():
    extras.require_extra("sweep", "a sweep")
    assert extras.missing_extra(ModuleNotFoundError("No module named 'pandas'", name="pandas")) is None
    # Torch is there: something in it is broken, and its own error says what.
    assert extras.missing_extra(ModuleNotFoundError("No module named 'torch.lost'", name="torch.lost")) is None
    assert extras.missing_extra(OSError("torch")) is None
