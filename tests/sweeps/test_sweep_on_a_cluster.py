"""Sweeps on three nodes, one of which dies in the middle: the records are those of a sweep on this machine alone."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankbench.tracking.record import read_record

pytestmark = pytest.mark.cluster

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"
NARROW = """
name: narrow
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
WIDE = """
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


def sweep(home: Path, experiment: str, *words: str, **environment: str) -> subprocess.Popen:
    variables = {
        "RANKBENCH_DATA": str(home.parent / "data"),
        "RANKBENCH_RESULTS": str(home / "results"),
        "RANKBENCH_OFFLINE": "1",
    }
    variables = os.environ | environment | variables
    variables.pop("RANKBENCH_TRACKING_URI", None)
    home.mkdir()
    (home / "x.yaml").write_text(experiment)
    return subprocess.Popen(
        [sys.executable, "-m", "rankbench", "sweep", "x.yaml", *words],
        env=variables, cwd=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def records_of(home: Path) -> dict:
    records = [read_record(path.parent) for path in home.glob("results/sweeps/*/records/[!.]*/record.json")]
    return {record.id: record for record in records}


def alone(home: Path, experiment: str) -> dict:
    """The records of the sweep on this machine."""
    process = sweep(home, experiment)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return records_of(home)


@contextmanager
def nodes(*words: str):
    """What the command of `nodes.py` says of the cluster that it starts."""
    process = subprocess.Popen([sys.executable, str(NODES), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=60)


def wait_for_records(process: subprocess.Popen, home: Path, n: int) -> None:
    deadline = time.monotonic() + 200
    while len(records_of(home)) < n:
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.05)


@pytest.mark.slow  # below, narrow trials lose a node beside wide ones
@pytest.mark.timeout(400)
@pytest.mark.fault("F1")
def test_a_node_that_dies_changes_nothing(tmp_path, figure):
    with nodes() as about:
        spread = sweep(tmp_path / "spread", NARROW, "--address", about["address"], **about["environment"])
        wait_for_records(spread, tmp_path / "spread", 2)
        os.kill(about["raylets"][2], signal.SIGKILL)
        _, err = spread.communicate(timeout=200)
        assert spread.returncode == 0, err
    there, here = records_of(tmp_path / "spread"), alone(tmp_path / "alone", NARROW)
    assert there.keys() == here.keys() and len(here) == 14
    assert all(record.finished for record in there.values())
    assert {name: record.metrics for name, record in there.items()} == {name: record.metrics for name, record in here.items()}
    figure(f"a sweep on 3 nodes, one killed: {len(here)} of {len(here)} records equal to those of one machine")


@pytest.mark.timeout(500)
@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.slow), True], ids=["calm", "a node dies"])
def test_trials_on_two_nodes_beside_narrow_ones_have_the_records_of_one_machine(tmp_path, dies):
    with nodes("--memory", "4000000000") as about:
        spread = sweep(tmp_path / "spread", WIDE, "--address", about["address"], **about["environment"])
        if dies:
            wait_for_records(spread, tmp_path / "spread", 1)
            os.kill(about["raylets"][2], signal.SIGKILL)
        _, err = spread.communicate(timeout=300)
        assert spread.returncode == 0, err
    assert "ials: 2 nodes of 1 CPU: resources.nodes: 2" in err
    there, here = records_of(tmp_path / "spread"), alone(tmp_path / "alone", WIDE)
    assert there.keys() == here.keys() and len(here) == 9
    assert all(record.finished for record in there.values())
    for name, record in here.items():
        if record.method == "ease":
            # By tiles on two nodes, unless only one was left.
            assert there[name].metrics["ndcg@10"].mean == pytest.approx(record.metrics["ndcg@10"].mean, rel=1e-4)
        else:
            assert there[name].metrics == record.metrics
