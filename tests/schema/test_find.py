"""The sweep that a name means is one of the experiment of that name, not of another whose name starts with it."""

import json
from dataclasses import replace

import pytest

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.core.storage import Storage
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.find import find
from rankbench.schema.stored_sweep import find_sweep

OLDER, NEWER = "78b06a2b-20261101-120000-000000", "11b06a2b-20261102-120000-000000"


@pytest.fixture
def store(tmp_path):
    environment = replace(Environment.from_env(), results=tmp_path / "results", results_store=None)

    def add(experiment, tail):
        content = {"name": experiment, "datasets": ["synthetic"], "arms": [{"method": "ease", "params": {"lam": 1}}]}
        spec = ExperimentSpec.model_validate(content).model_dump(mode="json")
        folder = environment.results / "sweeps" / f"{experiment}-{tail}"
        folder.mkdir(parents=True)
        about = {"id": folder.name, "experiment": spec, "fits": 1, "started_at": "2026-11-02T12:00:00"}
        (folder / "sweep.json").write_text(json.dumps(about))

    add.environment = environment
    return add


def test_another_experiment_whose_name_starts_so_is_not_meant(store):
    store("rg2-table2", OLDER)
    store("rg2-table2-standins", NEWER)
    assert find_sweep("rg2-table2", store.environment).name == f"rg2-table2-{OLDER}"
    assert find("rg2-table2", store.environment).about.experiment.name == "rg2-table2"
    assert find_sweep("rg2-table2-standins-11", store.environment).name == f"rg2-table2-standins-{NEWER}"


def test_the_newest_is_the_one_that_started_last_not_the_one_whose_folder_changed_last(store):
    store("demo", NEWER)
    store("demo", OLDER)
    assert find_sweep("demo", store.environment).name == find_sweep(None, store.environment).name == f"demo-{NEWER}"


def test_an_experiment_without_sweeps_shows_its_published_numbers(store):
    store("rg2-table2-standins", NEWER)
    stored = find("rg2-table2", store.environment)
    assert stored.about.experiment.name == "rg2-table2" and not stored.records


def test_the_start_of_several_names_is_refused(store):
    store("first-one", OLDER)
    store("first-two", NEWER)
    with pytest.raises(ConfigError, match="first: sweeps of several experiments start so: first-one, first-two; write one of"):
        find_sweep("first", store.environment)
    assert find_sweep("first-o", store.environment).name == f"first-one-{OLDER}"
    assert find_sweep(None, store.environment).name == f"first-two-{NEWER}"


def test_a_sweep_that_only_this_machine_has_is_found_beside_those_of_a_store(store, monkeypatch):
    store("demo", NEWER)
    shared = replace(store.environment, results_store=Storage("s3://bucket"))
    place = "rankbench.schema.stored_sweep."
    monkeypatch.setattr(f"{place}stored_ids", lambda storage: [f"demo-{OLDER}"])
    monkeypatch.setattr(f"{place}copy_sweep", lambda name, environment: environment.results / "copies" / name)
    for name in ("demo", None):
        assert find_sweep(name, shared) == shared.results / "sweeps" / f"demo-{NEWER}"
    assert find("demo", shared).about.id == f"demo-{NEWER}"
    assert find_sweep(f"demo-{OLDER}", shared) == shared.results / "copies" / f"demo-{OLDER}"
