"""Sweeps whose trials divide their own work, on clusters of 1, 2 and 4 processors: they end, and never wait for each other.

Trials of two nodes are nested: the trial and its blocks need processors of the same cluster. Ray may be told that it has four
processors on a machine of two.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbench.tracking.record import read_record

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(500)]

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"
EXPERIMENT = """
name: nested
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 200, interactions_per_user: 15}}}
arms:
  - {method: ials, params: {embedding_dim: {grid: [4, 8, 12, 16]}, iterations: 3}}
  - {method: ease, params: {lam: {grid: [4, 400]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: RESOURCES
"""


def sweep(home: Path, about: dict, resources: str) -> subprocess.CompletedProcess:
    home.mkdir()
    (home / "nested.yaml").write_text(EXPERIMENT.replace("RESOURCES", resources))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
    environment |= about["environment"] | {"RANKBENCH_DATA": str(home.parent / "data"), "RANKBENCH_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "rankbench", "sweep", "nested.yaml", "--address", about["address"]],
        env=environment | {"RANKBENCH_RESULTS": str(home / "results")}, cwd=home, text=True, capture_output=True, timeout=300,
    )  # fmt: skip


@pytest.mark.fault("F8")
@pytest.mark.parametrize(("nodes", "cpus"), [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2)])
def test_nested_trials_end_and_too_many_processors_are_refused(tmp_path, nodes, cpus, figure):
    words = ["--nodes", str(nodes), "--cpus", str(cpus), "--memory", "4000000000"]
    process = subprocess.Popen([sys.executable, str(NODES), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        about = json.loads(process.stdout.readline())
        done = sweep(tmp_path / "nested", about, "{cpus: 1, nodes: 2}")
        assert done.returncode == 0, done.stderr
        records = [read_record(path.parent) for path in tmp_path.glob("nested/results/sweeps/*/records/[!.]*/record.json")]
        assert len(records) == 8 and all(record.finished for record in records)
        began = time.monotonic()
        refused = sweep(tmp_path / "refused", about, f"{{cpus: {cpus + 1}}}")
        seconds = time.monotonic() - began
    finally:
        process.stdin.close()
        process.wait(timeout=60)
    line = refused.stderr.splitlines()[-1]
    assert refused.returncode == 2 and line.startswith("error: "), refused.stderr
    assert f"a fit needs {cpus + 1} CPUs" in line and not list(tmp_path.glob("refused/results/sweeps/*/records/*")), line
    figure(
        f"{nodes} x {cpus} CPU: a nested sweep of 8 fits ends; {cpus + 1} CPUs refused after {seconds:.1f} s, with both numbers"
    )
