"""The environment is read in one place, and a wrong variable is named."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rankbench.core.environment import VARIABLES, Environment
from rankbench.core.errors import ConfigError
from rankbench.core.storage import Storage


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("RANKBENCH_"):
            monkeypatch.delenv(name)


def test_defaults(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    environment = Environment.from_env()
    assert environment.data.name == "rankbench" and environment.data.is_absolute()
    assert environment.results == tmp_path / "results"
    assert (environment.mirror, environment.offline, environment.tracking_uri, environment.home) == (None, False, None, None)
    assert list(tmp_path.iterdir()) == []  # reading settings makes no folder


def test_the_records_of_every_command_are_found(tmp_path):
    environment = Environment(tmp_path, None, True, tmp_path / "results", None, None)
    folders = [tmp_path / "results" / place for place in ("reproduce/records/a", "runs/a", "sweeps/s/records/a", "runs/.tmp-b")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "record.json").touch()
    assert environment.record_files() == [folder / "record.json" for folder in folders[:-1]]


def test_a_store_beside_experiments_is_not_part_of_an_installed_package(tmp_path, monkeypatch):
    """Wherever that is: `pip install --target vendor` knows no site-packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankbench.core.environment._PACKAGE", tmp_path / "vendor" / "rankbench")
    environment = Environment(tmp_path, None, True, tmp_path / "results", None, None)
    (tmp_path / "vendor" / "rankbench" / "catalogue" / "experiments" / "evidence").mkdir(parents=True)
    assert environment.stored_beside_experiments("evidence", None) == tmp_path / "results" / "evidence"
    packaged = tmp_path / "vendor" / "rankbench" / "catalogue" / "experiments" / "evidence"
    assert environment.stored_beside_experiments("evidence", None, to_read=True) == packaged
    (tmp_path / "results" / "evidence").mkdir(parents=True)
    assert environment.stored_beside_experiments("evidence", None, to_read=True) == tmp_path / "results" / "evidence"
    (tmp_path / "experiments" / "evidence").mkdir(parents=True)
    assert environment.stored_beside_experiments("evidence", None) == tmp_path / "experiments" / "evidence"
    assert environment.stored_beside_experiments("evidence", tmp_path / "mine") == tmp_path / "mine"


def test_every_variable_is_read(tmp_path, monkeypatch):
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    values = {
        "RANKBENCH_DATA": str(tmp_path / "data"),
        "RANKBENCH_MIRROR": str(mirror),
        "RANKBENCH_OFFLINE": "1",
        "RANKBENCH_RESULTS": str(tmp_path / "results"),
        "RANKBENCH_CACHE": str(tmp_path / "copies"),
        "RANKBENCH_TRACKING_URI": "http://127.0.0.1:5000",
        "RANKBENCH_HOME": str(tmp_path),
        "RANKBENCH_PLUGINS": "my_loss.py",
    }
    assert set(values) == set(VARIABLES)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert Environment.from_env() == Environment(
        data=tmp_path / "data",
        mirror=mirror,
        offline=True,
        results=tmp_path / "results",
        tracking_uri="http://127.0.0.1:5000",
        home=tmp_path,
    )


def test_folders_are_absolute_and_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANKBENCH_DATA", "~/data")
    monkeypatch.setenv("RANKBENCH_RESULTS", "here/results")
    environment = Environment.from_env()
    assert environment.data == tmp_path / "data"
    assert environment.results == tmp_path / "here" / "results"


def test_data_and_results_may_be_in_a_store_with_local_copies(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("RANKBENCH_DATA", "s3://bucket/data")
    monkeypatch.setenv("RANKBENCH_RESULTS", "s3://bucket/team/results/")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    environment = Environment.from_env()
    assert environment.data_store == Storage("s3://bucket/data", "http://127.0.0.1:9000", os.environ.get("AWS_REGION"))
    assert environment.results_store and environment.results_store.uri == "s3://bucket/team/results"
    assert environment.data == tmp_path and environment.results.parent == tmp_path / "results"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9001")
    assert Environment.from_env().results != environment.results  # another store of the same name
    with pytest.raises(ConfigError, match=r"RANKBENCH_RESULTS=s3://bucket/team/results: x needs a folder; do y, or set"):
        environment.require_folder_of_results("x", "do y")


def test_a_worker_keeps_copies_where_its_own_host_says(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "driver"))
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RANKBENCH_RESULTS", "s3://bucket")
    environment = Environment.from_env()
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "worker"))
    assert environment.here().results == tmp_path / "worker" / "results" / environment.results.name
    assert environment.here().data == environment.data == tmp_path / "data"
    monkeypatch.delenv("RANKBENCH_CACHE")
    assert environment.here() == environment
    (tmp_path / "driver").write_text("in the way")  # as another user's folder is on this host
    monkeypatch.setattr("rankbench.core.environment.user_cache_dir", lambda name: str(tmp_path / "home" / name))
    assert environment.here().results == tmp_path / "home" / "rankbench" / "results" / environment.results.name


def test_an_empty_variable_is_an_unset_one(monkeypatch):
    unset = Environment.from_env()
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert Environment.from_env() == unset


@pytest.mark.parametrize(
    ("value", "offline"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("false", False), ("No", False), ("off", False)],
)
def test_offline_is_a_switch(value, offline, monkeypatch):
    monkeypatch.setenv("RANKBENCH_OFFLINE", value)
    assert Environment.from_env().offline is offline


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("RANKBENCH_RESULTS", "gs://bucket", r"expected a folder or s3://BUCKET/PREFIX"),
        ("RANKBENCH_DATA", "s3://", r"expected s3://BUCKET/PREFIX"),
        ("RANKBENCH_MIRROR", "s3://bucket", "must be a folder; only RANKBENCH_DATA and RANKBENCH_RESULTS may be in a store"),
        ("RANKBENCH_CACHE", "s3://bucket", "must be a folder"),
        ("RANKBENCH_DATA", "/tmp/\udcff", "the name is not UTF-8"),
        # Read as off, it would go to the network against the user's word.
        ("RANKBENCH_OFFLINE", "ture", "expected 1 or 0"),
        ("RANKBENCH_MIROR", "/data", r"unknown variable RANKBENCH_MIROR; did you mean RANKBENCH_MIRROR\?"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(name, value, problem, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"({name}={value}|environment): {problem}"):
        Environment.from_env()


def test_a_working_folder_that_is_gone_is_said(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working folder no longer exists"):
        Environment.from_env()


@pytest.mark.parametrize("name", ["RANKBENCH_HOME", "RANKBENCH_MIRROR"])
@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("a file")], ids=["missing", "a-file"])
def test_a_folder_to_read_that_is_none_is_refused(name, make, tmp_path, monkeypatch):
    make(tmp_path / "there")
    monkeypatch.setenv(name, str(tmp_path / "there"))
    with pytest.raises(ConfigError, match=f"{name}=.*there: no such folder"):
        Environment.from_env()


def test_catalogues_look_at_home_first_and_name_a_folder_once(tmp_path, environment, monkeypatch):
    product = Path(__file__).parents[2]
    assert environment.catalogues("datasets")[-1] == product / "datasets"
    for place in ("home", "work"):
        (tmp_path / place / "datasets").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    expected = [tmp_path / "home" / "datasets", tmp_path / "work" / "datasets", product / "datasets"]
    assert replace(environment, home=tmp_path / "home").catalogues("datasets") == expected
    monkeypatch.chdir(product)
    assert replace(environment, home=product).catalogues("datasets") == [product / "datasets"]
