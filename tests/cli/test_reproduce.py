"""rankbench reproduce: what is printed, and one line and exit code 2 for what is wrong."""

import json
from pathlib import Path

import pytest
import torch

from rankbench.cli import _main
from rankbench.reproduce.engine import Outcome

EXPERIMENT = """\
name: toy-table9
published: {paper: Toy, table: 9, recall: recall}
datasets: [toy]
arms:
  - {name: Popularity, method: popularity, published: {toy: {recall@20: 0.1}}}
  - {name: EASE, method: ease, params: {lam: {grid: [1, 10]}}, published: {toy: {recall@20: 0.2}}}
"""
CARD = """\
name: toy
source: {generator: {users: 60, items: 40, interactions_per_user: 8}}
split: {protocol: random-per-user}
"""


@pytest.fixture(autouse=True)
def home(home, monkeypatch):
    """A home with one table of a paper, on a small generated dataset."""
    folder = home / "home"
    (folder / "datasets").mkdir(parents=True)
    (folder / "experiments" / "evidence").mkdir(parents=True)
    (folder / "datasets" / "toy.yaml").write_text(CARD)
    (folder / "experiments" / "toy_table9.yaml").write_text(EXPERIMENT)
    monkeypatch.setenv("RANKBENCH_HOME", str(folder))
    # The fifty files of the package take seconds to read; one of them stands for all.
    files, published = "rankbench.reproduce.catalogue.experiment_files", Path(__file__).parents[2] / "experiments"
    monkeypatch.setattr(files, lambda environment: [*sorted(folder.rglob("toy_*.yaml")), published / "deql_table3.yaml"])
    return folder


def test_a_dry_run_lists_what_is_left_and_writes_nothing(home, capsys):
    assert _main(["reproduce", "toy/9", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(task["stage"], task["rows"], task["cells"]) for task in found["tasks"]] == [
        ("printed", "Popularity", 1),
        ("search", "EASE", 1),
    ]
    assert Path(found["evidence"]) == home / "experiments" / "evidence"
    assert not [*(home / "experiments" / "evidence").iterdir()]


def test_a_dry_run_says_what_a_budget_is_enough_for(capsys):
    assert _main(["reproduce", "toy/9", "--dry-run", "--budget", "2s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ending = [line.split() for line in lines if line.split()[-1:] == ["ends"]]
    # Searches of one row, for several columns, differ in the metric alone.
    assert [(words[0], words[2:5]) for words in ending] == [
        ("printed", ["Popularity", "toy/9", "1"]),
        ("search", ["EASE", "by", "ndcg@20"]),
    ]
    assert (
        next(line for line in lines if line.startswith("to the end in about 2 s on ")).count("Popularity on toy, seed 0 (") == 1
    )


def test_without_time_the_table_shows_what_is_published(capsys):
    assert _main(["reproduce", "toy/9", "--budget", "0s"]) == 0
    text = capsys.readouterr().out
    assert "toy/9 on toy" in text and text.count("not measured yet") == 2


def test_after_a_fit_that_failed_something_is_left_and_the_exit_code_says_so(capsys, monkeypatch):
    monkeypatch.setattr("rankbench.reproduce.agenda.reproduce", lambda *about: Outcome(failed=["EASE on toy: singular"]))
    assert _main(["reproduce", "toy/9"]) == 4
    text = capsys.readouterr().out
    assert "failed: EASE on toy: singular" in text and "the same command goes on" in text


def test_status_counts_the_published_cells(capsys):
    assert _main(["reproduce", "status", "toy", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["tables"]["toy/9"]
    assert (counts["published"], counts["data_here"], counts["measured"]) == (2, 2, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy/8"], "toy/8: no paper or table of that name; did you mean toy/9?"),
        (["toy/9", "--budget", "soon"], "--budget: expected a time such as 90s, 10m or 2h, got 'soon'"),
        (["toy/9", "--datasets", "toyy"], "--datasets: no selected table has 'toyy'; did you mean toy?"),
        (["toy/9", "--alone", "--stages", "printed"], "--alone runs measured fits of all stages again; leave out --stages"),
        (["toy/9", "--device", "tpu"], "--device tpu: expected cpu or cuda"),
        (["toy/9", "--gpus", "0.5"], "--gpus 0.5 is a share of a GPU; add --device cuda"),
        (["toy/9", "--device", "cuda", "--gpus", "2"], "--gpus 2.0: expected a share above 0, and at most 1"),
        (["deql/3"], "none of the datasets is available: yelp2018 (offline)"),
        (["status", "tallos"], "tallos: no paper or table of that name; did you mean talos?"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(words, message, capsys):
    assert _main(["reproduce", *words]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert errors[-1].startswith(f"error: {message}")


def test_two_files_cannot_state_the_same_number(home, capsys):
    (home / "experiments" / "toy_again.yaml").write_text(EXPERIMENT.replace("toy-table9", "toy-again"))
    assert _main(["reproduce", "toy/9", "--dry-run"]) == 2
    assert "has recall@20 of toy/9 on toy already" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_before_the_work(home, capsys):
    assert _main(["reproduce", "toy/9", "--device", "cuda"]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: device cuda: ")
    assert not [*(home / "experiments" / "evidence").iterdir()] and not (home.parent / "results").exists()
