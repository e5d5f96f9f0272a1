"""Trials on several nodes of a cluster, beside narrow ones: the records are those of one machine, also if a node dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbench.tracking.record import read_record

pytestmark = pytest.mark.cluster

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"
EXPERIMENT = """
name: wide
datasets:
  - {name: synthetic, source: {generator: {users: 600, items: 300, interactions_per_user: 15}}}
arms:
  - {method: ials, params: {embedding_dim: {grid: [8, 16]}, iterations: 6}}
  - {method: ease, params: {lam: {grid: [4, 400]}}}
  - {method: bpr, params: {embedding_dim: 8, epochs: 5, n_negatives: 5, learning_rate: {grid: [0.01, 0.1]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, nodes: 2}
"""


def sweep(home, *words, **environment):
    variables = {
        "RANKBENCH_DATA": str(home.parent / "data"),
        "RANKBENCH_RESULTS": str(home / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    variables = os.environ | environment | variables
    variables.pop("RANKBENCH_TRACKING_URI", None)
    home.mkdir()
    (home / "wide.yaml").write_text(EXPERIMENT)
    return subprocess.Popen(
        [sys.executable, "-m", "rankbench", "sweep", "wide.yaml", *words],
        env=variables, cwd=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def records_of(home):
    records = [read_record(path.parent) for path in home.glob("results/sweeps/*/records/[!.]*/record.json")]
    return {record.id: record for record in records}


@pytest.mark.timeout(500)
@pytest.mark.parametrize("dies", [False, True], ids=["calm", "a node dies"])
def test_wide_trials_have_the_records_of_one_machine(tmp_path, dies):
    process = subprocess.Popen(
        [sys.executable, str(NODES), "--memory", "4000000000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        about = json.loads(process.stdout.readline())
        spread = sweep(tmp_path / "spread", "--address", about["address"], **about["environment"])
        deadline = time.monotonic() + 200
        while dies and not records_of(tmp_path / "spread"):
            assert spread.poll() is None and time.monotonic() < deadline, spread.stderr.read()
            time.sleep(0.05)
        if dies:
            os.kill(about["raylets"][2], signal.SIGKILL)
        _, err = spread.communicate(timeout=300)
        assert spread.returncode == 0, err
    finally:
        process.stdin.close()
        process.wait(timeout=60)
    assert "ials: 2 nodes of 1 CPU: resources.nodes: 2" in err
    alone = sweep(tmp_path / "alone")
    _, err = alone.communicate(timeout=200)
    assert alone.returncode == 0, err
    there, here = records_of(tmp_path / "spread"), records_of(tmp_path / "alone")
    assert there.keys() == here.keys() and len(here) == 9
    assert all(record.finished for record in there.values())
    for name, record in here.items():
        if record.method == "ease":  # solved by tiles there
            assert there[name].tiles and there[name].metrics["ndcg@10"].mean == pytest.approx(record.metrics["ndcg@10"].mean)
        else:
            assert there[name].metrics == record.metrics
