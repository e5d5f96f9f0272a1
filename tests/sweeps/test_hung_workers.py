"""A worker that hangs is named in a warning, and its fit is run again once that process has been ended.

Ray finds a worker that is stopped by itself. This one sleeps in its fit, while its other threads answer.
"""

import os
import re
import signal

import pytest

from .commands import output, records_of, start

pytestmark = pytest.mark.cluster

LOSS = """
import itertools, time
from dataclasses import dataclass
from pathlib import Path
from torch import Tensor
from rankbench.core.params import Params, param
from rankbench.losses.spec import Scores, loss

CALLS = itertools.count()

@dataclass(frozen=True)
class Sleepy(Params):
    flag: str = param("", "a file that is there once a fit has hung")

@loss("sleepy", Sleepy, similarity="dot", title="Sleepy", source="a test")
def sleepy(s: Scores, p: Sleepy) -> Tensor:
    time.sleep(0.02)
    if next(CALLS) == 250 and not Path(p.flag).exists():  # seconds after its first report
        Path(p.flag).touch()
        time.sleep(1e6)
    return (1 - s.pos[:, None] + s.neg).clamp(min=0).mean(dim=1)
"""
SLEEPY = """
name: sleepy
plugins: [sleepy.py]
datasets:
  - {name: synthetic, source: {generator: {users: 60, items: 30, interactions_per_user: 8}}}
arms:
  - {method: sleepy, params: {embedding_dim: 4, epochs: 400, patience: 0, flag: FLAG}}
final: {fit_on: train}
cutoffs: [10]
"""
# Trials report every few seconds; 15 s are a long silence here.
COMMAND = """
import sys
from rankbench.__main__ import main
from rankbench.sweeps import running
running.SILENT, running.TIMES = 15.0, 0
sys.argv = ["rankbench", "sweep", "sleepy.yaml"]
main()
"""


def test_a_worker_that_hangs_is_named_and_its_fit_run_again_once_it_is_ended(tmp_path):
    (tmp_path / "sleepy.py").write_text(LOSS)
    (tmp_path / "sleepy.yaml").write_text(SLEEPY.replace("FLAG", str(tmp_path / "flag")))
    process = start(tmp_path, program=COMMAND)
    warning = r"^warning: sleepy on synthetic, .*: no report for \d+ s, .*\(host \S+, process (\d+)\); if it hangs"
    try:
        found = next(found for line in process.stderr if (found := re.search(warning, line)))
        os.kill(int(found[1]), signal.SIGKILL)
        _, rest = output(process)
    finally:
        process.kill()
    assert "no report for" not in rest
    assert [record.stage for record in records_of(tmp_path).values() if record.finished].count("search") == 1
