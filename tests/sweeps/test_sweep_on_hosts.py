"""One experiment with every family of methods on hosts with addresses of their own: one is killed, and another joins late."""

import subprocess
import sys
from pathlib import Path

import pytest

from .commands import output, records_of, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
from hosts import hosts, unavailable

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXPERIMENT = """
name: families
datasets:
  - {name: synthetic, source: {generator: {users: 8000, items: 5000, interactions_per_user: 20}}}
  - {name: synthetic-amazon-book, source: {generator: {users: 5000, items: 4000, interactions_per_user: 20}}}
arms:
  - {method: ease, params: {lam: {grid: [50, 500]}}}
  - {method: deql-l2, params: {p: 0.5, b: 2.0, lam_prime: {grid: [10, 100]}}}
  - {method: ials, params: {embedding_dim: {grid: [64, 96]}, iterations: 120}}
  - {method: sl, params: {embedding_dim: 32, epochs: 18, n_negatives: 50, tau: {grid: [0.1, 0.2]}}}
  - {name: LightGCN, method: bpr, params: {model: lightgcn, embedding_dim: 32, epochs: 14, learning_rate: {grid: [0.01, 0.05]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, nodes: 2}
"""
BY_TILES = ("ease", "deql-l2")


def sweep(cluster, home, *words):
    home.mkdir()
    (home / "families.yaml").write_text(EXPERIMENT)
    places = {"RANKBENCH_DATA": str(home.parent / "data"), "RANKBENCH_RESULTS": str(home / "results"), "RANKBENCH_OFFLINE": "1"}
    command = [sys.executable, "-m", "rankbench", "sweep", "families.yaml", "--json", *words]
    return cluster.start(command, env=places, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.timeout(1500)
def test_every_family_is_complete_and_equal_although_a_host_dies_and_another_joins(tmp_path):
    if reason := unavailable():
        pytest.skip(reason)
    with hosts(3) as cluster:
        spread = sweep(cluster, tmp_path / "spread", "--address", cluster.address)
        wait_until(lambda: len(records_of(tmp_path / "spread")) >= 4, spread)
        cluster.kill(2)
        cluster.add()
        output(spread)
        output(sweep(cluster, tmp_path / "alone"))
    there, here = records_of(tmp_path / "spread"), records_of(tmp_path / "alone")
    assert there.keys() == here.keys() and len(here) == 30
    assert all(record.finished for record in there.values())
    for name, record in here.items():
        for metric, value in record.metrics.items():
            same = pytest.approx(value.mean, rel=1e-4, abs=1e-4) if record.method in BY_TILES else value.mean
            assert there[name].metrics[metric].mean == same, (name, metric)
