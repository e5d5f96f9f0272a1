"""Finished runs of another version of the code are named where a sweep is resumed; runs of different data end it."""

from dataclasses import replace

import pytest

from rankbench.core import plugins
from rankbench.core.errors import ConfigError
from rankbench.sweeps.reuse import changed_code
from rankbench.sweeps.sweep import require_one_dataset
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


def test_data_that_change_while_a_sweep_runs_end_it():
    old, new, draw, other = (
        replace(record({}), dataset=DatasetInfo(name, fingerprint, split_seed=seed))
        for name, fingerprint, seed in (("toy", "a", 0), ("toy", "b", 0), ("toy", "b", 1), ("shop", "c", 0))
    )
    require_one_dataset([old, draw, other, record({}, "stopped"), old])
    with pytest.raises(ConfigError, match="the data of toy changed while the sweep ran"):
        require_one_dataset([old, other, new])
