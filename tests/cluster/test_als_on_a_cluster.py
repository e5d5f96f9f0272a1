"""ALS on a real three-node cluster that loses workers and nodes: the bits of a fit in one process, whatever happens.

Each scenario is a process of its own: Ray reads its settings when it is imported.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])

COMMON = """
import json, threading, time
import numpy as np, scipy.sparse as sp
from nodes import cluster
from rankbench.experiment.job import configure
from rankbench.experiment.fit import fit as fit_configs
from rankbench.cluster.session import session
from rankbench.experiment.execution import Execution
from rankbench.fitting.executors import ThreadMap

rng = np.random.default_rng(0)
X = sp.csr_array((rng.random((3000, 2000)) < rng.random((3000, 1)) ** 3).astype(np.float32))

def fit(where, fault=lambda: None, iterations=4):
    chosen = configure("ials", {"embedding_dim": 128, "iterations": iterations})
    ends = [time.monotonic()]

    def tell(step):
        ends.append(time.monotonic())
        if step.number == 2:
            threading.Timer(0.1, fault).start()   # in the middle of the third iteration

    (model,) = fit_configs((chosen,), X, "float32", 0, Execution(executor=where), observe=lambda step: tell(step) or {}).models
    return model, [b - a for a, b in zip(ends, ends[1:])]

whole, _ = fit(ThreadMap(1))
said = {}

def compare(name, where, fault=lambda: None, **more):
    model, seconds = fit(where, fault)
    said[name] = {"same": bool(np.array_equal(model.U, whole.U) and np.array_equal(model.V, whole.V)),
                  "seconds": seconds, "blocks": where.resubmitted, **more}
"""


def scenario(text, timeout=400):
    done = subprocess.run(
        [sys.executable, "-c", COMMON + text], capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.fault("F1", "F2")
def test_a_cluster_that_loses_a_worker_and_a_node_gives_the_bits_of_one_process(figure):
    said = scenario("""
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    compare("calm", RayMap())
    compare("worker", RayMap(), lambda: nodes.kill_worker(nodes.busy_node()))
    compare("node", RayMap(), lambda: nodes.kill_node(nodes.busy_node()))
print(json.dumps(said))
""")
    assert all(each["same"] for each in said.values()), said
    print(said)
    figure("iALS, a worker and a node of 3 killed: the same bits")


@pytest.mark.slow
@pytest.mark.fault("F3")
def test_a_frozen_node_is_gone_round_and_a_new_one_is_used(figure):
    said = scenario("""
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    compare("calm", RayMap())
    frozen = []
    compare("frozen", RayMap(), lambda: frozen.extend(nodes.freeze_node(nodes.busy_node())))
    nodes.thaw(frozen)
    compare("thawed", RayMap())
    where = RayMap()
    before = where.workers
    # A node joins in the middle of a fit. Ray can start it in the main thread alone.
    fitting = threading.Thread(target=compare, args=("joining", where))
    fitting.start()
    time.sleep(1)
    nodes.add_node()
    fitting.join()
    compare("joined", where)
    said["joined"]["workers"] = [before, where.workers]
print(json.dumps(said))
""")
    assert all(each["same"] for each in said.values()), said
    assert max(said["frozen"]["seconds"]) < max(said["calm"]["seconds"]) + 15
    before, after = said["joined"]["workers"]
    assert after == before + 1
    print(said)
    figure(f"iALS, a node frozen: the same bits, {said['frozen']['blocks']} blocks submitted again; a node that joins is used")


@pytest.mark.slow
@pytest.mark.fault("F5")
def test_a_driver_without_its_node_ends_with_4_and_goes_on_later(tmp_path, figure):
    environment = ENVIRONMENT | {"RANKBENCH_DATA": str(tmp_path / "data"), "RANKBENCH_RESULTS": str(tmp_path / "broken")}
    run = [
        sys.executable, "-m", "rankbench", "run", "synthetic", "ials", "embedding_dim=256", "iterations=60", "--curve", "0",
        "data.source.generator.users=8000", "data.source.generator.items=3000", "--no-track", "--json",
    ]  # fmt: skip
    whole = subprocess.run(
        run, capture_output=True, text=True, timeout=400, env=environment | {"RANKBENCH_RESULTS": str(tmp_path / "whole")}
    )
    nodes = subprocess.Popen(
        [sys.executable, str(HERE / "nodes.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        about = json.loads(nodes.stdout.readline())
        joined = [*run, "--address", about["address"]]
        broken = subprocess.Popen(
            joined, env=environment | about["environment"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        checkpoints = tmp_path / "broken" / "checkpoints"
        while not list(checkpoints.glob("*/00000[3-9]")):
            assert broken.poll() is None, broken.stderr.read()
            time.sleep(0.01)
        os.kill(about["raylets"][0], 9)
        killed = time.monotonic()
        _, errors = broken.communicate(timeout=90)
        took = time.monotonic() - killed
    finally:
        nodes.stdin.close()
        nodes.wait(timeout=60)
    assert broken.returncode == 4 and took < 60, (broken.returncode, took, errors)
    assert errors.strip().splitlines()[-1].startswith("error: ") and "Traceback" not in errors
    saved = max(int(path.name) for path in checkpoints.glob("*/[0-9]*"))
    resumed = subprocess.run([*run, "--resume"], capture_output=True, text=True, timeout=400, env=environment)
    assert saved >= 3
    assert json.loads(resumed.stdout)["metrics"] == json.loads(whole.stdout)["metrics"]
    figure(f"run: exit 4, {took:.1f} s after the death of the driver's node; --resume gives the same metrics")
