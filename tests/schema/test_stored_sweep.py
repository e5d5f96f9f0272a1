"""What a sweep left in its folder is read whole, or refused with the file and the field."""

import json
import os
from dataclasses import replace

import pytest

from rankbench.core.errors import DataError
from rankbench.core.files import write_json
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import ChosenFile, ChosenRow, read_sweep

SPEC = ExperimentSpec.model_validate(
    {"name": "toy", "datasets": ["synthetic"], "arms": [{"method": "ease", "params": {"lam": 1}}]}
)
SWEEP = {"id": "toy-1", "experiment": SPEC.model_dump(mode="json"), "notes": [], "fits": 1, "started_at": "2026-11-22T00:00:00"}
ROWS = [{"dataset": "synthetic", "arm": "ease", "final": ["run"]}]
CHOSEN = {"rows": ROWS, "finished_at": "2026-11-22T00:01:00", "on": "valid"}
COMPARED = {"metrics": ["ndcg@20"], "models": [], "comparisons": [], "level": 0.05}


@pytest.fixture
def folder(tmp_path):
    for name, content in (("sweep", SWEEP), ("chosen", CHOSEN), ("comparisons", COMPARED)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_a_whole_sweep_is_read(folder):
    stored = read_sweep(folder)
    assert stored.about.experiment == SPEC
    assert stored.chosen.rows == (ChosenRow(dataset="synthetic", arm="ease", final=("run",)),)
    assert (stored.chosen.on, stored.compared.level) == ("valid", 0.05)


def test_what_was_written_by_another_version_is_written_back_with_every_key(folder):
    later = {"name": "synthetic", "title": "T", "split": {"seed": 3}}
    (folder / "sweep.json").write_text(json.dumps({**SWEEP, "cards": [later], "new": {"a": 1}}))
    write_json(folder / "sweep.json", read_sweep(folder).about.content())
    content = json.loads((folder / "sweep.json").read_text())
    assert content["cards"] == [later] and content["new"] == {"a": 1} and content["experiment"] == SWEEP["experiment"]
    names = "id experiment command changes cards not_available notes settings fits started_at new"
    assert list(content) == names.split()  # the order in which every version wrote them
    assert list(ChosenFile.model_validate(CHOSEN).model_dump()) == ["metric", "on", "rows", "failed", "finished_at", "datasets"]


def test_a_dataset_on_which_nothing_could_be_chosen_leaves_no_sweep_unfinished(folder):
    stored = read_sweep(folder)
    for rows, datasets, finished in ((True, (), True), (False, (), False), (False, ("synthetic",), True)):
        chosen = stored.chosen.model_copy(update={"datasets": datasets} | ({} if rows else {"rows": ()}))
        assert replace(stored, chosen=chosen).finished == finished


def test_an_unfinished_sweep_is_read(folder):
    (folder / "chosen.json").unlink()
    (folder / "comparisons.json").unlink()
    assert (read_sweep(folder).chosen, read_sweep(folder).compared) == (None, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sweep", {**SWEEP, "experiment": {}}, "experiment.name: missing"),
        ("sweep", {**SWEEP, "experiment": "toy"}, "experiment: "),
        ("sweep", {**SWEEP, "notes": 3}, "notes: "),
        ("sweep", {**SWEEP, "cards": [{}]}, "cards.0.name: missing"),
        ("sweep", {**SWEEP, "fits": "1"}, "fits: expected a whole number, got '1'"),
        ("sweep", [SWEEP], "not the sweep.json of a sweep (input should be an object"),
        ("chosen", {**CHOSEN, "rows": [{"dataset": "synthetic"}]}, "rows.0.arm: missing"),
        ("chosen", {**CHOSEN, "rows": [{"dataset": "synthetic", "arm": "ease", "final": None}]}, "rows.0.final: "),
        ("chosen", None, "not the chosen.json of a sweep (input should be an object"),
        ("comparisons", {**COMPARED, "models": [{"dataset": "synthetic"}]}, "models.0.metric: missing"),
        ("comparisons", {**COMPARED, "comparisons": [{"metric": "ndcg@20"}]}, "comparisons.0.dataset: missing"),
    ],
)
def test_a_damaged_file_is_named_with_its_field(name, content, message, folder):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError) as error:
        read_sweep(folder)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff"])
def test_what_is_no_json_is_named(text, folder):
    path = folder / "chosen.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as error:
        read_sweep(folder)
    assert str(error.value).startswith(f"{path}: ")


def test_a_pipe_in_place_of_a_file_is_refused(folder):
    (folder / "sweep.json").unlink()
    os.mkfifo(folder / "sweep.json")
    with pytest.raises(DataError, match=r"sweep\.json: not the sweep\.json of a sweep \(not a regular file\)"):
        read_sweep(folder)
