"""A closed form by tiles on a real three-node cluster that loses workers and nodes: the bits of a calm run, the metrics of the
dense one.

Each scenario is a process of its own: Ray reads its settings when it is imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])

COMMON = """
import json, os, sys, threading, time
from pathlib import Path
import numpy as np, scipy.sparse as sp
from nodes import cluster
from rankbench.cluster.session import session
from rankbench.data.splits import Holdout
from rankbench.evaluation.columns import rank_by_columns, rank_by_columns_on
from rankbench.experiment.methods import registered
from rankbench.solvers.tiled.fit import fit_tiled
from rankbench.core.threads import pinned

folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
n = 3000
dense = rng.random((3000, n)) < 0.3 * np.geomspace(1, 0.1, n)
X = sp.csr_array(dense.astype(np.float32))
target = sp.csr_array(((rng.random((3000, n)) < 0.02) & ~dense).astype(np.float32))
holdout = Holdout(np.arange(3000, dtype=np.int32), X, target)
methods = registered()
members = [(methods.get(name), methods.get(name).params(**values))
           for name, values in (("edlae", {"p": 0.5, "lam": 3.0}), ("deql-l2", {"p": 0.5, "b": 2.0, "lam_prime": 3.0}))]
FAR = 10**10

def whole(models):
    return models[0].C.columns(0, n)

with pinned(1):
    alone = fit_tiled(X, members, folder / "alone", FAR, flow=None)
said = {}

class Watched:
    # A flow that counts how often it was begun again. Where it is done, too, it is cleared.
    def __init__(self, flow):
        self.flow, self.cleared = flow, 0

    def __getattr__(self, name):
        return getattr(self.flow, name)

    def clear(self):
        self.cleared += 1
        self.flow.clear()

def compare(name, where, at=0.5, fault=lambda: None):
    # The fault comes in the panel after a share `at` of the work, and again until work is lost: a worker may die between tasks.
    flow, struck, began = Watched(where.flow()), [], time.monotonic()

    def strike():
        while not flow.cleared:
            fault()
            time.sleep(0.1)

    def tell(done, total):
        if done >= at * total and not struck:
            struck.append(threading.Thread(target=strike, daemon=True))
            struck[0].start()

    models = fit_tiled(X, members, folder / name, FAR, progress=tell, flow=flow)
    said[name] = {"tile": models[0].C.tile, "tasks": flow.n_tasks, "redone": flow.cleared - 1,
                  "seconds": time.monotonic() - began}
    return models

def once(fault):
    left = [fault]
    return lambda: left.pop()() if left else None
"""


def scenario(text, folder, timeout=400):
    done = subprocess.run(
        [sys.executable, "-c", COMMON + text, str(folder)], capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(400)
@pytest.mark.fault("F1", "F2")
def test_a_cluster_that_loses_a_worker_and_a_node_gives_the_bits_of_a_calm_one(tmp_path, figure):
    said = scenario(
        """
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    calm = compare("calm", RayMap())
    C = whole(calm)
    close = np.abs(C - whole(alone)).max() / np.abs(C).max()
    for name, at, fault in (("worker", 0.3, lambda: nodes.kill_worker(nodes.busy_node())),
                            ("node", 0.6, once(lambda: nodes.kill_node(nodes.busy_node())))):
        said[name + " same"] = bool(np.array_equal(whole(compare(name, RayMap(), at, fault)), C))
    expected = rank_by_columns(calm, holdout, 20, 500, auc=True)
    found = rank_by_columns_on(RayMap(), calm, holdout, 20, 400, auc=True)
    said["ranking same"] = all(np.array_equal(a.items, b.items) and np.array_equal(a.auc, b.auc)
                               for a, b in zip(found, expected, strict=True))
    said["close"] = float(close)
print(json.dumps(said))
""",
        tmp_path,
    )
    assert said["worker same"] and said["node same"] and said["ranking same"], said
    assert said["close"] < 1e-5, said
    assert said["calm"]["redone"] == 0 and min(said[name]["redone"] for name in ("worker", "node")) >= 1, said
    redone = [said[name]["redone"] for name in ("worker", "node")]
    figure("tiles, workers and a node killed: the same bits, panels begun again {} and {} times".format(*redone))


@pytest.mark.timeout(400)
def test_the_bits_do_not_depend_on_where_tiles_are(tmp_path):
    said = scenario(
        """
from rankbench.fitting.method import Shift
from rankbench.solvers.tiled.inverse import tiled_inverse

def inverse(name, flow=None):
    C = tiled_inverse(X, Shift(0.5, 3.0), folder / name, FAR, tile=300, flow=flow)
    return C.columns(0, n)

with pinned(1):
    expected = inverse("one process")
with cluster(1) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    for number in range(1, 5):
        if number > 1:
            nodes.add_node()
        flow = RayMap().flow()
        said[f"nodes {number}"] = flow.nodes
        said[f"same {number}"] = bool(np.array_equal(inverse(f"on {number}", flow), expected))
print(json.dumps(said))
""",
        tmp_path,
    )
    assert said == {f"nodes {n}": n for n in range(1, 5)} | {f"same {n}": True for n in range(1, 5)}


@pytest.mark.slow
def test_a_node_that_dies_while_columns_are_ranked_changes_nothing(tmp_path):
    said = scenario(
        """
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    expected = rank_by_columns(alone, holdout, 20, 500)
    where, left = RayMap(), [True]

    def tell(done, total):
        if done >= 4 and left:
            left.pop()
            nodes.kill_node(nodes.busy_node())

    found = rank_by_columns_on(where, alone, holdout, 20, 150, progress=tell)
    said["killed"] = not left
    said["same"] = all(np.array_equal(a.items, b.items) and np.array_equal(a.scores, b.scores)
                       for a, b in zip(found, expected, strict=True))
print(json.dumps(said))
""",
        tmp_path,
    )
    assert said["killed"] and said["same"], said


@pytest.mark.slow
@pytest.mark.fault("F3")
def test_a_node_that_hangs_is_found_dead_and_its_panel_made_again(tmp_path, figure):
    said = scenario(
        """
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
    C, frozen = whole(compare("calm", RayMap())), []
    again = compare("frozen", RayMap(), 0.5, once(lambda: frozen.extend(nodes.freeze_node(nodes.busy_node()))))
    said["same"] = bool(np.array_equal(whole(again), C))
    nodes.thaw(frozen)
print(json.dumps(said))
""",
        tmp_path,
    )
    assert said["same"], said
    assert said["frozen"]["seconds"] < said["calm"]["seconds"] + 60, said
    figure(f"tiles, a node frozen: the same bits, {said['frozen']['seconds'] - said['calm']['seconds']:+.1f} s")


def test_a_run_on_a_cluster_has_the_metrics_of_one_in_memory(tmp_path):
    nodes = subprocess.Popen(
        [sys.executable, str(HERE / "nodes.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    environment = ENVIRONMENT | {"RANKBENCH_DATA": str(tmp_path / "data"), "RANKBENCH_RESULTS": str(tmp_path / "results")}

    def run(name, *words, **more):
        done = subprocess.run(
            [sys.executable, "-m", "rankbench", "run", "synthetic", "ease", "lam=20", "--no-track", "--json", *words],
            capture_output=True, text=True, timeout=300,
            env=environment | {"RANKBENCH_RESULTS": str(tmp_path / name)} | more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    try:
        about = json.loads(nodes.stdout.readline())
        joined = run("cluster", "--address", about["address"], **about["environment"])
    finally:
        nodes.communicate()
    alone = run("alone")
    assert json.loads((Path(joined["folder"]) / "record.json").read_text())["tiles"]
    assert not list((tmp_path / "cluster" / "spill").glob("*"))
    for name, value in alone["metrics"].items():
        assert joined["metrics"][name]["mean"] == pytest.approx(value["mean"], abs=1e-4, rel=1e-4), name
