"""A sweep on three nodes, one of which dies in the middle: the records are those of a sweep on this machine alone."""

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
name: spread
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 100, interactions_per_user: 15}}}
arms:
  - {method: ease, params: {lam: {grid: [1, 2, 4, 8, 16, 32, 64, 128]}}}
  - method: bpr
    params: {embedding_dim: 8, epochs: 30, patience: 30, n_negatives: 5, learning_rate: {grid: [0.001, 0.003, 0.01, 0.1]}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1}
"""


def sweep(home: Path, *words: str, **environment: str) -> subprocess.Popen:
    variables = {
        "RANKBENCH_DATA": str(home.parent / "data"),
        "RANKBENCH_RESULTS": str(home / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    variables |= os.environ | environment | variables
    variables.pop("RANKBENCH_TRACKING_URI", None)
    home.mkdir()
    (home / "spread.yaml").write_text(EXPERIMENT)
    return subprocess.Popen(
        [sys.executable, "-m", "rankbench", "sweep", "spread.yaml", *words],
        env=variables, cwd=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def records_of(home: Path) -> dict:
    records = [read_record(path.parent) for path in home.glob("results/sweeps/*/records/[!.]*/record.json")]
    return {record.id: record for record in records}


@pytest.mark.timeout(400)
def test_a_node_that_dies_changes_nothing(tmp_path):
    process = subprocess.Popen([sys.executable, str(NODES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        about = json.loads(process.stdout.readline())
        spread = sweep(tmp_path / "spread", "--address", about["address"], **about["environment"])
        deadline = time.monotonic() + 150
        while len(records_of(tmp_path / "spread")) < 2:
            assert spread.poll() is None and time.monotonic() < deadline, spread.stderr.read()
            time.sleep(0.1)
        os.kill(about["raylets"][2], signal.SIGKILL)
        _, err = spread.communicate(timeout=200)
        assert spread.returncode == 0, err
    finally:
        process.stdin.close()
        process.wait(timeout=60)
    alone = sweep(tmp_path / "alone")
    _, err = alone.communicate(timeout=200)
    assert alone.returncode == 0, err
    there, here = records_of(tmp_path / "spread"), records_of(tmp_path / "alone")
    assert there.keys() == here.keys() and len(here) == 14
    assert all(record.finished for record in there.values())
    assert {name: record.metrics for name, record in there.items()} == {name: record.metrics for name, record in here.items()}
