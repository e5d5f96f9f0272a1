"""The plugins of the page on extending: each is checked, run and swept as the page says, from files outside the package."""

import json
from pathlib import Path

import pytest

from rankbench.cli import _main
from rankbench.core import plugins

from .pages import saved_files

ROOT = Path(__file__).parents[2]
SMALL = ("data.source.generator.users=100", "data.source.generator.items=60", "--no-track")
FILES = saved_files(ROOT / "docs" / "extending.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extended")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def rankbench(folder, monkeypatch, capsys):
    """rankbench(*words) → what the command prints as JSON, in a folder with the files of the page."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    for name in ("data", "results"):
        monkeypatch.setenv(f"RANKBENCH_{name.upper()}", str(folder / name))

    def rankbench(*words: str) -> dict:
        with plugins.separate():
            code = _main([*words, "--json"])
        printed = capsys.readouterr()
        assert code == 0, printed.err + printed.out
        return json.loads(printed.out)

    return rankbench


def test_the_page_has_the_files_that_it_names():
    assert set(FILES) == {"my_loss.py", "my_sweep.yaml", "pure_svd.py", "my_metric.py"}
    assert len([line for line in FILES["my_loss.py"].splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize(("file", "kinds"), [("my_loss.py", "loss"), ("pure_svd.py", "method"), ("my_metric.py", "metric")])
def test_each_of_them_keeps_the_contract(rankbench, file, kinds):
    found = rankbench("check", file)
    assert found["ok"] and {check["kind"] for check in found["checks"]} == {kinds}
    assert sum(check["state"] == "passed" for check in found["checks"]) >= 4


def test_the_loss_runs(rankbench):
    record = rankbench("run", "synthetic", "squared-hinge", "margin=0.5", "epochs=3", "--plugin", "my_loss.py", *SMALL)
    (plugin,) = record["environment"]["plugins"]
    assert plugin["name"] == "my_loss.py" and record["params"]["margin"] == 0.5


def test_the_sweep_of_the_loss_is_planned(rankbench):
    rows = rankbench("sweep", "my_sweep.yaml", "--dry-run")["rows"]
    assert [(row["model"], row["state"], row["settings"]) for row in rows] == [
        ("squared-hinge", "planned", 3),
        ("bpr", "planned", 1),
    ]


def test_the_solver_runs_and_stops_early(rankbench):
    own = ("--plugin", "pure_svd.py", *SMALL)
    whole = rankbench("run", "synthetic", "pure-svd", "iterations=20", *own)
    early = rankbench("run", "synthetic", "pure-svd", "iterations=20", "patience=1", *own)
    assert whole["iterations"] == 20 > early["iterations"] and whole["metrics"] != early["metrics"]


def test_the_metric_is_measured(rankbench):
    record = rankbench("run", "synthetic", "ease", "--metrics", "rbp@20,ndcg@20", "--plugin", "my_metric.py", *SMALL)
    assert 0 < record["metrics"]["rbp@20"]["mean"] < record["metrics"]["ndcg@20"]["mean"] < 1
