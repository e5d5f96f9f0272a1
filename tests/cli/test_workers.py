"""--workers: refused where it has no meaning, without Ray for one worker, and the same measures with two."""

import dataclasses
import json
import subprocess
import sys

import pytest

from rankbench.cli import _main
from rankbench.tracking.record import DatasetInfo, RunRecord
from rankbench.tracking.run_fields import record_tags

pytestmark = pytest.mark.usefixtures("home")

TINY = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]
SHORT = ["epochs=3", "embedding_dim=8", "n_negatives=5"]


@pytest.mark.parametrize("command", [["run", "--no-track"], ["fit", "--out", "model"]], ids=["run", "fit"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ease", "--workers", "2"], "--workers 2: ease is fitted by one worker only, because it is not trained by gradient"),
        (["multivae", "--workers", "2"], "--workers 2: multivae is fitted by one worker only"),
        (["bpr", "model=simplex", "user_dropout=0.1", "--workers", "3"], "because user_dropout draws numbers for the rows"),
        (["bpr", "--workers", "0"], "--workers"),
        (["bpr", "--workers", "100000"], "--workers 100000: 100000 workers are too many"),
        (["bpr", "--address", "127.0.0.1:1"], "--address: bpr is fitted in this process"),
    ],
)
def test_workers_that_could_do_nothing_are_refused_in_one_line(home, capsys, monkeypatch, command, words, message):
    monkeypatch.chdir(home)
    assert _main([command[0], "synthetic", *words, *TINY, *command[1:]]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(home.iterdir())


def test_one_worker_needs_no_ray_and_is_part_of_the_record(home):
    code = f"""
import sys
from rankbench.cli import _main
code = _main(["run", "synthetic", "bpr", *{TINY + SHORT}, "--workers", "1", "--no-track", "--json"])
print("ray" in sys.modules, code, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stderr.splitlines()[-1] == "False 0"
    assert json.loads(done.stdout)["workers"] == 1


def test_mlflow_shows_several_workers(home):
    record = RunRecord("x", "bpr", {}, DatasetInfo("x"), "train", "test", 0, "float32", workers=3)
    assert record_tags(record, home)["rankbench.workers"] == "3"
    assert "rankbench.workers" not in record_tags(dataclasses.replace(record, workers=1), home)


@pytest.mark.cluster
def test_two_workers_measure_what_one_does(home):
    def run(*words):
        options = ["--fresh", "--dtype", "float64", "--no-track", "--json"]
        given = ["run", "synthetic", "bpr", *TINY, *SHORT, "patience=0", *words, *options]
        done = subprocess.run([sys.executable, "-m", "rankbench", *given], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    alone, together = run(), run("--workers", "2")
    assert (alone["workers"], together["workers"]) == (1, 2)
    assert alone["id"] == together["id"]
    for name, value in alone["metrics"].items():
        assert together["metrics"][name]["mean"] == pytest.approx(value["mean"], rel=1e-9), name
