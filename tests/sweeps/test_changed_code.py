"""Finished runs of another version of the code are named where a sweep is resumed."""

import pytest

from rankbench.core import plugins
from rankbench.sweeps.sweep import changed_code
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
    other.write_text("y = 1\n")
    without = record(describe_environment())
    assert changed_code([without]) == []
    plugins.load(path)
    first = record(describe_environment())
    assert changed_code([first]) == [] and changed_code([first, without]) == ["mine.py"]
    path.write_text("x = 2\n")
    plugins.load(path)
    assert changed_code([first]) == ["mine.py"]
    assert changed_code([record(first.environment, "failed")]) == []  # it is repeated
    plugins.load(other)
    assert changed_code([first]) == ["mine.py", "other.py"]


@pytest.mark.parametrize("code", ["0" * 16, None])
def test_another_version_of_the_program_is_named(code):
    """None: a record of a version that stored no hash of its source files."""
    about = describe_environment()
    assert changed_code([record(about)]) == []
    assert changed_code([record(about | {"code": code})]) == ["rankbench"]
    assert changed_code([record(about | {"code": code}, "failed")]) == []
