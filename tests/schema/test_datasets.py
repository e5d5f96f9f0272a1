"""Cards that an experiment file names by path: where they are looked up, and what they are called from there on."""

from pathlib import Path

import pytest

from rankbench.core.errors import ConfigError
from rankbench.reports.report import sweep_table
from rankbench.schema.datasets import card_of
from rankbench.schema.reading import load_experiment
from rankbench.schema.stored_sweep import ComparisonsFile, StoredSweep, SweepFile
from rankbench.sweeps.plan import plan

COMPARED = ComparisonsFile(metrics=("ndcg@5",), comparisons=(), models=())
EXPERIMENT = """
name: shops
datasets: [{name: ./my-shop.yaml, split: {seed: 7}}]
arms: [{method: ease, params: {lam: {grid: [1, 10]}}, published: {my-shop: {ndcg@5: 0.5}}, chosen: {my-shop: {lam: 10}}}]
cutoffs: [5]
search: {choose: {metric: ndcg@5}}
"""


def shop(folder: Path, title: str = "", name: str = "my-shop") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = "{users: 60, items: 30, interactions_per_user: 8}"
    path = folder / "my-shop.yaml"
    path.write_text(f"name: {name}\ntitle: {title!r}\nsource: {{generator: {generator}}}\n")
    return path


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The experiment file, which lies elsewhere than the working folder."""
    work, folder = tmp_path / "work", tmp_path / "files"
    work.mkdir()
    folder.mkdir()
    monkeypatch.chdir(work)
    path = folder / "shops.yaml"
    path.write_text(EXPERIMENT)
    return path


def test_a_path_is_relative_to_the_experiment_file_and_becomes_the_name_of_the_card(file, environment):
    card = shop(file.parent, "beside the file")
    shop(Path.cwd(), "in the working folder")
    spec = load_experiment(file, {})
    assert spec.datasets == ({"name": "my-shop", "file": str(card), "split": {"seed": 7}},)
    found = card_of(spec.datasets[0], environment, "here")
    assert (found.title, found.split.seed) == ("beside the file", 7)


def test_the_working_folder_is_looked_at_second_and_first_for_a_path_of_the_command_line(file, environment):
    here = shop(Path.cwd())
    assert load_experiment(file, {}).datasets[0]["file"] == str(here)
    beside = shop(file.parent)
    assert load_experiment(file, {"datasets": ["./my-shop.yaml"]}).datasets == ({"name": "my-shop", "file": str(here)},)
    assert load_experiment(file, {"datasets": [str(beside)]}).datasets == ({"name": "my-shop", "file": str(beside)},)


def test_of_a_card_that_is_nowhere_the_message_says_where_was_looked(file):
    with pytest.raises(ConfigError) as error:
        load_experiment(file, {})
    assert str(error.value) == (f"{file}: datasets[0]: ./my-shop.yaml: no such dataset card in {file.parent} or {Path.cwd()}")
    with pytest.raises(ConfigError, match=r"datasets\[0\]: file: unknown key; give the path of a card as its `name`"):
        load_experiment(file, {"datasets": [{"name": "synthetic", "file": "x.yaml"}]})


def test_the_maps_of_an_arm_and_the_table_go_by_the_name_of_the_card(file, environment):
    shop(file.parent)
    spec = load_experiment(file, {})
    (given,) = plan(spec, environment, 2, "x.yaml", use_chosen=True).given["my-shop"]
    assert given.flat["lam"] == 10
    about = SweepFile(id="s", experiment=spec, fits=0, started_at="")
    rows = sweep_table(StoredSweep(file.parent, about, None, {}, COMPARED)).rows
    assert [(row.dataset, row.published) for row in rows] == [("my-shop", {"ndcg@5": 0.5})]


def test_a_sweep_that_was_stored_with_a_path_has_no_rows_by_that_path(file):
    shop(file.parent)
    stored = load_experiment(file, {}).model_dump(mode="json") | {"datasets": ["./my-shop.yaml"]}
    about = {"id": "s", "experiment": stored, "cards": [{"name": "my-shop"}], "fits": 0, "started_at": ""}
    about = SweepFile.model_validate(about)
    rows = sweep_table(StoredSweep(file.parent, about, None, {}, COMPARED)).rows
    assert [row.dataset for row in rows] == ["my-shop"]


def test_a_sweep_is_the_same_wherever_its_card_lies(file, environment):
    shop(file.parent)
    key = plan(load_experiment(file, {}), environment, 2, "x.yaml").key
    (file.parent / "my-shop.yaml").rename(Path.cwd() / "my-shop.yaml")
    assert plan(load_experiment(file, {}), environment, 2, "x.yaml").key == key
