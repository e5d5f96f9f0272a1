"""Plugins on workers: also on one that has run tasks before the plugin was loaded, changed or removed from the disk."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster

PLUGIN = """
import os
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Block:
    number: int

def solve(block, shared):
    return FACTOR * block.number + shared.number, os.getpid(), type(block) is Block

def make(n):
    return [np.full(n, 1.0)]

def change(array):
    array += FACTOR

def require(array):
    assert (array == 1 + FACTOR).all(), array
"""
SCENARIO = """
import json, os, sys
from pathlib import Path
from rankbench.cluster.session import session
from rankbench.core import plugins

TEXT = Path("text").read_text()

def loaded(factor):
    path = Path("mine.py")
    path.write_text(TEXT.replace("FACTOR", str(factor)))
    plugin = plugins.load(path)
    path.unlink()
    return sys.modules[plugin.module]

def answers(where, mine):
    found = dict(where.map(mine.solve, [mine.Block(n) for n in range(4)], mine.Block(100)))
    return [found[n][0] for n in range(4)], {pid for _, pid, _ in found.values()}, all(same for _, _, same in found.values())

with session(cpus=1):
    from rankbench.cluster.ray_map import RayMap
    where = RayMap()
    dict(where.map(abs, [1, 2]))
    first, pids, same = answers(where, loaded(2))
    second, others, again = answers(where, loaded(3))
    mine, flow = loaded(5), where.flow()
    flow.make(["a"], mine.make, 3)
    flow.change("a", mine.change, [])
    flow.wait([flow.use("a", mine.require)])
    one = pids == others and len(pids) == 1
    print(json.dumps({"first": first, "second": second, "one_worker": one, "same": same and again, "tasks": flow.n_tasks}))
"""


@pytest.mark.timeout(300)
def test_a_living_worker_gets_a_plugin_and_its_changes(tmp_path):
    (tmp_path / "text").write_text(PLUGIN)
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"first": [100, 102, 104, 106], "second": [100, 103, 106, 109], "one_worker": True, "same": True, "tasks": 3}
