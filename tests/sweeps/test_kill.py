"""The driver of a sweep killed at random moments, twenty in all: nothing finished is lost or run again, MLflow shows each trial
once, and the table is that of a sweep that nobody disturbed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from rankbench.tracking.record import read_record

TIMES, PARTS = 5, 4  # kills of a part, and parts
EXPERIMENT = """
name: killed
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 100, interactions_per_user: 15}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [3, 10, 30, 100]}}}
  - {method: ials, params: {embedding_dim: 8, iterations: 5, lam: {grid: [0.003, 0.01]}}}
  - method: bpr
    params: {embedding_dim: 8, epochs: 20, patience: 20, n_negatives: 5, learning_rate: {grid: [0.001, 0.01, 0.1]}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1}
"""


def start(home: Path, *words: str) -> subprocess.Popen:
    environment = os.environ | {
        "RANKBENCH_DATA": str(home.parent / "data"),
        "RANKBENCH_RESULTS": str(home / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    environment.pop("RANKBENCH_TRACKING_URI", None)
    return subprocess.Popen(
        [sys.executable, "-m", "rankbench", "sweep", "killed.yaml", *words],
        env=environment, cwd=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def table(home: Path) -> dict:
    """What the final table says, without seconds."""
    # A driver that died before sweep.json was there has begun no sweep, and the next one takes a folder of its own.
    (path,) = home.glob("results/sweeps/*/report/table.json")
    rows = json.loads(path.read_text())["rows"]
    return {row["model"]: (row["params"], row["metrics"]) for row in rows}


def finished(home: Path) -> dict[str, int]:
    """Record id → when it was written."""
    paths = (home / "results").glob("sweeps/*/records/[!.]*/record.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in paths if read_record(path.parent).finished}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.fault("F7")
def test_a_killed_driver_loses_nothing(part, tmp_path, figure):
    def home_of(name: str) -> Path:
        home = tmp_path / name
        home.mkdir()
        (home / "killed.yaml").write_text(EXPERIMENT)
        return home

    calm = home_of("calm")
    began = time.monotonic()
    process = start(calm)
    assert process.wait(300) == 0, process.stderr.read()
    whole = time.monotonic() - began
    rng = random.Random(part)
    for number in range(TIMES):
        home = home_of(f"killed-{number}")
        process = start(home)
        time.sleep(rng.uniform(1, whole))
        below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(below, timeout=30)
        for child in alive:  # what outlives its driver is Ray's to end; the next start must not meet it
            child.kill()
        kept = finished(home)
        begun = any((home / "results").glob("sweeps/*/sweep.json"))
        process = start(home, *["--resume"] * begun)
        assert process.wait(300) == 0, process.stderr.read()
        assert table(home) == table(calm), number
        after = finished(home)
        assert {name: after[name] for name in kept} == kept, number
        assert after.keys() == finished(calm).keys()
        client = MlflowClient(f"sqlite:///{home / 'results' / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("killed")
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        children = [run.data.tags["mlflow.runName"] for run in runs if "rankbench.run" in run.data.tags]
        parents = [run for run in runs if "rankbench.run" not in run.data.tags]
        ids = [run.data.tags["rankbench.record"] for run in runs if "rankbench.run" in run.data.tags]
        assert len(ids) == len(set(ids)) == len(after), (number, children)
        assert len(parents) == 1
    figure(
        f"sweep, SIGKILL at {TIMES} random moments: finished trials not run again, the same table, each trial in MLflow once"
    )
