"""A clock that is set by a day, forward and back, in the middle of a sweep: the records and the table are those of a calm one.

Every Python process of the sweep, Ray's workers too, asks a clock that a file moves. Ray's programs in C++ keep the true one.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbench.tracking.record import read_record

DAY = 86_400
# Read by Python at its start, from a folder on PYTHONPATH.
CLOCK = """
import os, time
_true, _file = time.time, os.environ["MOVED_CLOCK"]

def moved():
    try:
        with open(_file) as file:
            return _true() + float(file.read() or 0)
    except OSError:
        return _true()

time.time = moved
time.time_ns = lambda: int(moved() * 1e9)
"""
EXPERIMENT = """
name: clock
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 100, interactions_per_user: 15}}}
arms:
  - {method: ease, params: {lam: {grid: [1, 2, 4, 8]}}}
  - {method: bpr, params: {embedding_dim: 8, epochs: 30, patience: 30, n_negatives: 5, learning_rate: {grid: [0.001, 0.01]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1}
"""


def start(home: Path) -> subprocess.Popen:
    home.mkdir()
    (home / "clock.yaml").write_text(EXPERIMENT)
    (home / "sitecustomize.py").write_text(CLOCK)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
    environment |= {"RANKBENCH_DATA": str(home / "data"), "RANKBENCH_RESULTS": str(home / "results"), "RANKBENCH_OFFLINE": "1"}
    environment |= {"MOVED_CLOCK": str(home / "seconds"), "PYTHONPATH": f"{home}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(
        [sys.executable, "-m", "rankbench", "sweep", "clock.yaml"],
        cwd=home, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def records(home: Path) -> dict:
    found = [read_record(path.parent) for path in home.glob("results/sweeps/*/records/[!.]*/record.json")]
    return {record.id: record for record in found}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.fault("F7")
def test_a_clock_that_is_set_in_mid_sweep_changes_nothing(tmp_path, figure):
    calm = start(tmp_path / "calm")
    assert calm.wait(250) == 0, calm.stderr.read()
    expected = records(tmp_path / "calm")
    home, jumps = tmp_path / "moved", 0
    process = start(home)
    deadline = time.monotonic() + 250
    while process.poll() is None:
        assert time.monotonic() < deadline
        if len(records(home)) > jumps:  # after each record: a day forward, a day back, two days back ...
            jumps += 1
            scratch = home / "next"
            scratch.write_text(str((DAY, 0, -2 * DAY, -DAY)[jumps % 4]))
            scratch.rename(home / "seconds")
        time.sleep(0.05)
    assert process.returncode == 0, process.stderr.read()
    found = records(home)
    assert jumps >= 3 and found.keys() == expected.keys()
    assert {name: record.metrics for name, record in found.items()} == {
        name: record.metrics for name, record in expected.items()
    }
    # Seconds are those of a clock that nobody sets.
    assert all(0 <= sum(record.seconds.values()) < 1000 for record in found.values())
    (folder,) = (home / "results" / "sweeps").iterdir()
    assert (
        len(json.loads((folder / "report" / "table.json").read_text())["rows"]) == 2 and not (folder / "running.json").exists()
    )
    figure(f"a clock set {jumps} times by one or two days in a sweep: {len(found)} of {len(found)} records of the same metrics")
