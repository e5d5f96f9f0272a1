"""A clock that is set by a day, forward and back, in the middle of a sweep: the records and the table are those of a calm one.

Every Python process of the sweep, Ray's workers too, asks a clock that a file moves. Ray's programs in C++ keep the true one.
"""

import json
import os
import time

import pytest

from .commands import output, records_of, start

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


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.fault("F7")
def test_a_clock_that_is_set_in_mid_sweep_changes_nothing(tmp_path, figure):
    (tmp_path / "clock.yaml").write_text(EXPERIMENT)
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    variables = {"MOVED_CLOCK": str(tmp_path / "seconds"), "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    words = ("sweep", str(tmp_path / "clock.yaml"))
    output(start(tmp_path / "calm", *words, **variables))
    expected = records_of(tmp_path / "calm")
    home, jumps = tmp_path / "moved", 0
    process = start(home, *words, **variables)
    deadline = time.monotonic() + 250
    while process.poll() is None:
        assert time.monotonic() < deadline
        if len(records_of(home)) > jumps:  # after each record: a day forward, a day back, two days back ...
            jumps += 1
            scratch = tmp_path / "next"
            scratch.write_text(str((DAY, 0, -2 * DAY, -DAY)[jumps % 4]))
            scratch.rename(tmp_path / "seconds")
        time.sleep(0.05)
    output(process)
    found = records_of(home)
    assert jumps >= 3
    assert {name: record.metrics for name, record in found.items()} == {name: each.metrics for name, each in expected.items()}
    # Seconds are those of a clock that nobody sets.
    assert all(0 <= sum(record.seconds.values()) < 1000 for record in found.values())
    (folder,) = (home / "results" / "sweeps").iterdir()
    assert len(json.loads((folder / "report" / "table.json").read_text())["rows"]) == 2
    assert not (folder / "running.json").exists()
    figure(f"a clock set {jumps} times by one or two days in a sweep: {len(found)} of {len(found)} records of the same metrics")
