"""The command: a sweep, an experiment file, or all of them, as a user asks for them."""

import dataclasses
import json

import pyarrow as pa
import pytest
import yaml

from rankbench.cli import _main
from rankbench.core.files import write_json
from rankbench.tracking.record import write_record


@pytest.fixture
def home(home, monkeypatch):
    """A folder with two experiment files, one of them broken, and no data, no network and no sweep."""
    experiment = {
        "name": "my-table", "question": "Why?", "datasets": ["gowalla"],
        "published": {"paper": "P", "table": 3, "recall": "open"},
        "arms": [{"name": "E", "method": "ease", "params": {"lam": 5}, "published": {"gowalla": {"recall@20": 0.1765}}}],
        "not_run": [{"name": "Graph net", "why": "not built", "published": {"gowalla": {"recall@20": 0.2}}}],
    }  # fmt: skip
    folder = home / "home" / "experiments"
    folder.mkdir(parents=True)
    (folder / "my_table.yaml").write_text(yaml.safe_dump(experiment))
    (folder / "broken.yaml").write_text("name: broken\narms: 3\n")
    monkeypatch.setenv("RANKBENCH_HOME", str(home / "home"))
    return home


@pytest.mark.parametrize("name", ["experiments/my_table.yaml", "my-table"])
def test_an_experiment_that_was_never_run_shows_what_is_published(home, capsys, name):
    assert _main(["report", name, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [(row["model"], row["state"]) for row in content["rows"]] == [("E", "not run"), ("Graph net", "not run")]
    assert content["metrics"] == ["recall@20", "recall_capped@20"]
    assert content["rows"][0]["published"] == {"recall@20": 0.1765, "recall_capped@20": 0.1765}
    assert not (home / "data").exists()


@pytest.mark.parametrize("format", ["html", "latex"])
def test_it_is_shown_in_another_format(home, capsys, format):
    assert _main(["report", "my_table.yaml", "--format", format]) == 0
    text = capsys.readouterr().out
    assert "not run" in text and "0.1765" in text and "Graph net" in text


def test_an_unknown_name_is_one_line_with_the_nearest(home, capsys):
    assert _main(["report", "my_tabel"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "did you mean my_table?" in printed.err and printed.err.count("\n") == 1


@pytest.fixture
def store(home, make_run, make_sweep):
    """store(time, means by arm, finished=True): a folder in results/sweeps, as a sweep of my-table leaves it."""

    def save(time, means, finished=True):
        runs = [make_run("final", arm, mean, "gowalla") for arm, mean in means.items()]
        folder = home / "results" / "sweeps" / f"my-table-0123abcd-{time}-000000"
        runs = [dataclasses.replace(run, id=run.arm) for run in runs]
        named = {"about": {"id": folder.name}, "experiment": {"name": "my-table"}}
        stored = make_sweep(runs, {arm: {} for arm in means}, datasets=["gowalla"], **named)
        write_json(folder / "sweep.json", stored.about.content())
        write_json(folder / "comparisons.json", stored.compared.content())
        for record in stored.records.values():
            write_record(folder / "records", record, pa.table({"user": [1]}))
        if finished:
            write_json(folder / "chosen.json", stored.chosen.content())
        return folder

    return save


def test_a_file_stands_for_its_newest_sweep(store, capsys):
    store("20260101-000000", {"E": 0.1, "old": 0.2})
    store("20260202-000000", {"E": 0.3, "F": 0.2})
    assert _main(["report", "my_table.yaml", "--json"]) == 0
    assert [row["model"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["E", "F"]
    third = store("20260303-000000", {"E": 0.5}, finished=False)
    assert _main(["report", "my_table.yaml", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["folder"] == str(third) and content["rows"][0]["state"] == "not run"


def test_in_a_pipe_the_best_and_the_second_are_still_marked_and_names_are_not_styles(store, capsys):
    store("20260101-000000", {"[red]A": 0.3, "B": 0.2, "C": 0.1})
    assert _main(["report", "my-table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # What the tests show comes before the table; these runs have none.
    assert lines[1] == "3 models were measured and not tested against each other, so there is no conclusion."
    assert next(line for line in lines if "0.3000 ¹" in line).startswith("[red]A")
    assert any(line.startswith("B") and "0.2000 ²" in line for line in lines)
    assert any(line.startswith("C") and "0.1000 " in line and "²" not in line for line in lines)
