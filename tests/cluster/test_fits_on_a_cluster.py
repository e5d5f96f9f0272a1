"""ALS and closed forms by tiles on clusters that lose workers and nodes: the bits of one process, whatever happens."""

import json
import os
import time
from pathlib import Path

import pytest
from programs import answer, assert_same_metrics, printed, run_command, running_nodes

pytestmark = pytest.mark.cluster

COMMON = """
import json, sys, threading, time
from pathlib import Path
import numpy as np, scipy.sparse as sp
from nodes import cluster
from rankbench.cluster.session import session
from rankbench.core.threads import pinned
from rankbench.data.splits import Holdout
from rankbench.evaluation.columns import rank_by_columns_on
from rankbench.evaluation.ranking import rank
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.solvers.tiled.recommender import fit_tiled

folder, n = Path(sys.argv[1]), 2000
rng = np.random.default_rng(0)
dense = rng.random((n, n)) < 0.3 * np.geomspace(1, 0.1, n)
X = sp.csr_array(dense.astype(np.float32))
target = sp.csr_array(((rng.random((n, n)) < 0.02) & ~dense).astype(np.float32))
holdout = Holdout(np.arange(n, dtype=np.int32), X, target)
by_activity = sp.csr_array((rng.random((3000, n)) < rng.random((3000, 1)) ** 3).astype(np.float32))
methods = registered()
members = [(methods.get(name), methods.get(name).params(**values))
           for name, values in (("edlae", {"p": 0.5, "lam": 3.0}), ("deql-l2", {"p": 0.5, "b": 2.0, "lam_prime": 3.0}))]
said = {}

def fit_als(where, fault=lambda: None):
    ends = [time.monotonic()]

    def tell(step):
        ends.append(time.monotonic())
        if step.number == 2:
            threading.Timer(0.1, fault).start()  # in the middle of the third iteration

    chosen = configure("ials", {"embedding_dim": 128, "iterations": 4})
    execution = Execution(executor=where)
    (model,) = fit_configs((chosen,), by_activity, "float32", 0, execution, observe=lambda step: tell(step) or {}).models
    return model, [b - a for a, b in zip(ends, ends[1:])]

def als(name, where, fault=lambda: None):
    model, seconds = fit_als(where, fault)
    said[name] = {"same": bool(np.array_equal(model.U, whole.U) and np.array_equal(model.V, whole.V)),
                  "seconds": seconds, "blocks": where.resubmitted}

class Watched:
    # A flow that counts how often it was begun again. Where it is done, too, it is cleared.
    def __init__(self, flow):
        self.flow, self.cleared = flow, 0

    def __getattr__(self, name):
        return getattr(self.flow, name)

    def clear(self):
        self.cleared += 1
        self.flow.clear()

def fit_by_tiles(name, flow=None, progress=lambda done, total: None):
    # Of the same tiles wherever they are computed.
    tiled_inverse(X, members[0][0].shift(members[0][1]), folder / name, 10**10, tile=200, progress=progress, flow=flow)
    return fit_tiled(X, members, folder / name, 10**10, resume=True)

def tiles(name, where, fault=lambda: None, at=0.5):
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

    models = fit_by_tiles(name, flow, tell)
    said[name] = {"same": bool(np.array_equal(models[0].C.columns(0, n), alone[0].C.columns(0, n))),
                  "redone": flow.cleared - 1, "seconds": time.monotonic() - began}

def ranked(name, where, progress=lambda done, total: None):
    found, expected = (rank_by_columns_on(where, alone, holdout, 20, 150, auc=True, progress=progress),
                       rank(alone, holdout, 20, auc=True, columns=500))
    said[name] = {"same": all(np.array_equal(a.items, b.items) and np.array_equal(a.scores, b.scores)
                              and np.array_equal(a.auc, b.auc) for a, b in zip(found, expected, strict=True))}

def once(fault):
    left = [fault]
    return lambda: left.pop()() if left else None

whole, _ = fit_als(ThreadMap(1))
with pinned(1):
    alone = fit_by_tiles("alone")
with cluster(3) as nodes, session(nodes.address):
    from rankbench.cluster.ray_map import RayMap
"""


def scenario(text, folder):
    """What `text` said, which runs on a cluster of three nodes; everything must have the bits of one process."""
    said = answer("-c", COMMON + text + "\nprint(json.dumps(said))", folder)
    different = [name for name, each in said.items() if not each["same"]]
    assert not different, f"{different}: {said}"
    return said


@pytest.mark.fault("F1", "F2")
def test_a_cluster_that_loses_workers_and_nodes_gives_the_bits_of_one_process(tmp_path, figure):
    said = scenario(
        """
    als("worker", RayMap(), lambda: nodes.kill_worker(nodes.busy_node()))
    als("node", RayMap(), lambda: nodes.kill_node(nodes.busy_node()))
    nodes.add_node()
    tiles("tiles, worker", RayMap(), lambda: nodes.kill_worker(nodes.busy_node()), 0.3)
    tiles("tiles, node", RayMap(), once(lambda: nodes.kill_node(nodes.busy_node())), 0.6)
    ranked("ranking", RayMap())
""",
        tmp_path,
    )
    redone = [said[f"tiles, {name}"]["redone"] for name in ("worker", "node")]
    assert min(redone) >= 1, said
    figure("iALS, a worker and a node of 3 killed: the same bits")
    figure("tiles, workers and a node killed: the same bits, panels begun again {} and {} times".format(*redone))


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.fault("F3")
def test_a_node_that_hangs_is_gone_round(tmp_path, figure):
    said = scenario(
        """
    frozen, freeze = [], lambda: frozen.extend(nodes.freeze_node(nodes.busy_node()))
    als("calm", RayMap())
    als("frozen", RayMap(), freeze)
    nodes.thaw(frozen)
    als("thawed", RayMap())
    tiles("tiles, calm", RayMap(), at=2)
    frozen.clear()
    tiles("tiles, frozen", RayMap(), once(freeze))
    nodes.thaw(frozen)
""",
        tmp_path,
    )
    assert max(said["frozen"]["seconds"]) < max(said["calm"]["seconds"]) + 15
    longer = said["tiles, frozen"]["seconds"] - said["tiles, calm"]["seconds"]
    assert longer < 60, said
    figure(f"iALS, a node frozen: the same bits, {said['frozen']['blocks']} blocks submitted again")
    figure(f"tiles, a node frozen: the same bits, {longer:+.1f} s")


@pytest.mark.slow
def test_a_node_that_dies_while_columns_are_ranked_changes_nothing(tmp_path):
    said = scenario(
        """
    left = [True]

    def tell(done, total):
        if done >= 4 and left:
            left.pop()
            nodes.kill_node(nodes.busy_node())

    ranked("ranking", RayMap(), tell)
    said["ranking"]["killed"] = not left
""",
        tmp_path,
    )
    assert said["ranking"]["killed"], said


@pytest.mark.slow
@pytest.mark.fault("F5")
def test_a_driver_without_its_node_ends_with_4_and_goes_on_later(tmp_path, figure):
    sizes = ["data.source.generator.users=8000", "data.source.generator.items=3000"]
    words = ["ials", "embedding_dim=256", "iterations=60", *sizes]
    whole = printed(run_command(tmp_path / "whole", *words))
    with running_nodes() as about:
        broken = run_command(tmp_path / "broken", *words, "--address", about["address"], **about["environment"])
        checkpoints = tmp_path / "broken" / "checkpoints"
        while not list(checkpoints.glob("*/00000[3-9]")):
            assert broken.poll() is None, broken.stderr.read()
            time.sleep(0.01)
        os.kill(about["raylets"][0], 9)
        killed = time.monotonic()
        _, errors = broken.communicate(timeout=90)
        took = time.monotonic() - killed
    assert broken.returncode == 4 and took < 60, (broken.returncode, took, errors)
    assert errors.strip().splitlines()[-1].startswith("error: ") and "Traceback" not in errors
    assert max(int(path.name) for path in checkpoints.glob("*/[0-9]*")) >= 3
    assert printed(run_command(tmp_path / "broken", *words, "--resume"))["metrics"] == whole["metrics"]
    figure(f"run: exit 4, {took:.1f} s after the death of the driver's node; --resume gives the same metrics")


def test_a_run_on_a_cluster_has_the_metrics_of_one_in_memory(tmp_path):
    with running_nodes(2) as about:
        words = ("ease", "lam=20", "--address", about["address"])
        joined = printed(run_command(tmp_path / "joined", *words, **about["environment"]))
    alone = printed(run_command(tmp_path / "alone", "ease", "lam=20"))
    assert json.loads((Path(joined["folder"]) / "record.json").read_text())["tiles"]
    assert not list((tmp_path / "joined" / "spill").glob("*"))
    assert_same_metrics(joined, alone)
