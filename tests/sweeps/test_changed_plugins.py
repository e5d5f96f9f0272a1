"""Finished runs of another version of a plugin are named where a sweep is resumed."""

import pytest

from rankbench.core import plugins
from rankbench.sweeps.sweep import _changed_plugins
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import DatasetInfo, RunRecord


def record(environment, status="finished"):
    return RunRecord("id", "ease", {}, DatasetInfo("toy"), "train", "valid", 0, "float32", status, environment=environment)


@pytest.fixture(autouse=True)
def separate():
    with plugins.separate():
        yield


def test_a_changed_a_missing_and_a_new_plugin_are_named(tmp_path):
    path, other = tmp_path / "mine.py", tmp_path / "other.py"
    path.write_text("x = 1\n")
    other.write_text("x = 1\n")
    without = record(describe_environment())
    assert _changed_plugins([without]) == []
    plugins.load(path)
    first = record(describe_environment())
    assert _changed_plugins([first]) == [] and _changed_plugins([first, without]) == ["mine.py"]
    path.write_text("x = 2\n")
    plugins.load(path)
    assert _changed_plugins([first]) == ["mine.py"]
    assert _changed_plugins([record(first.environment, "failed")]) == []  # it is repeated
    plugins.load(other)
    assert _changed_plugins([first]) == ["mine.py", "other.py"]
