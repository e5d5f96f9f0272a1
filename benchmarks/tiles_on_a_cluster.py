"""A closed form by tiles on a local cluster of several nodes, calm and with a node killed in each phase.

    python benchmarks/tiles_on_a_cluster.py run 15000 --nodes 3
    python benchmarks/tiles_on_a_cluster.py bytes 15000 --nodes 3

`run` prints a line for a calm run, one whose node is killed in the factorisation, and one that loses a node while columns are
ranked: seconds of both phases, tasks, time a task beyond its own work, bytes that tasks read (the most that can have moved
between nodes), the most memory that all processes of the cluster held together, pages they share counted once, and whether the
result is that of the calm run. `bytes` makes the nodes hosts with networks of their own, which takes root, and says what came
into each during the factorisation, and what a simulation expects. `inverse_scale.py` measures times on such hosts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
sys.path.insert(0, str(HERE))

USERS = 20_000  # number of users that the columns are ranked for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    real = modes.add_parser("run")
    real.add_argument("n_items", type=int)
    real.add_argument("--nodes", type=int, default=3)
    real.add_argument("--store", type=float, default=1.0, help="GB of a node's object store")
    real.add_argument("--calm", action="store_true", help="without the kills")
    real.add_argument("--folder", type=Path, help="where the tiles lie for the time being")
    counted = modes.add_parser("bytes")
    counted.add_argument("n_items", type=int)
    counted.add_argument("--nodes", type=int, default=3)
    counted.add_argument("--store", type=float, default=1.0, help="GB of a host's object store")
    joined = modes.add_parser("join")  # what `bytes` starts on its first host
    joined.add_argument("n_items", type=int)
    joined.add_argument("address")
    joined.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.mode == "run":
        run(given)
    elif given.mode == "bytes":
        count_bytes(given)
    else:
        join(given)


def count_bytes(given: argparse.Namespace) -> None:
    from hosts import hosts

    with (
        tempfile.TemporaryDirectory() as folder,
        hosts(given.nodes, object_store_memory=int(given.store * 1e9)) as made,
    ):
        before = [made.received(host) for host in range(given.nodes)]
        words = [sys.executable, __file__, "join", str(given.n_items), made.address, folder]
        if made.start(words).wait():
            sys.exit("the factorisation failed")
        came = [(made.received(host) - before[host]) / 1e9 for host in range(given.nodes)]
        print(f"came into each host: {', '.join(f'{each:.2f}' for each in came)} GB", flush=True)
    from rankbench.fitting.simulated_pool import Hardware
    from rankbench.solvers.tiled.simulation import simulate

    paper = simulate(given.n_items, Hardware(given.nodes, 1, given.store * 1e9 / 0.3, 10.0, 170e9))
    print(f"expected: {paper.sent / given.nodes / 1e9:.2f} GB each")


def join(given: argparse.Namespace) -> None:
    from rankbench.cluster.session import session

    with session(given.address):
        from tiled import some_data

        from rankbench.cluster.ray_map import RayMap
        from rankbench.experiment.methods import registered
        from rankbench.solvers.tiled.recommender import fit_tiled

        solver, flow, start = registered().get("ease"), RayMap().flow(), time.perf_counter()
        fit_tiled(some_data(given.n_items), [(solver, solver.params(lam=20.0))], given.folder, 10**11, flow=flow)
        print(f"n={given.n_items:,} tasks={flow.n_tasks:,} fit_s={time.perf_counter() - start:.1f}", flush=True)


def run(given: argparse.Namespace) -> None:
    """Each run on a cluster of its own, in a process of its own: Ray reads its settings once."""
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        kills = [""] if given.calm else ["", "factorisation", "columns"]
        for kill_in in kills:
            process = multiprocessing.get_context("spawn").Process(target=_run_one, args=(given, kill_in, folder))
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(process.exitcode)


def _run_one(given: argparse.Namespace, kill_in: str, folder: Path) -> None:
    from nodes import cluster  # before ray: it makes its settings

    from rankbench.cluster.session import session

    with cluster(given.nodes, object_store_memory=int(given.store * 1e9)) as nodes, session(nodes.address):
        title = f"a node killed in the {kill_in}" if kill_in else "calm"
        items = measure(title, given.n_items, nodes, folder, kill_in)
    if not kill_in:
        np.save(folder / "calm.npy", items)
        return
    same = np.array_equal(items, np.load(folder / "calm.npy"))
    print(f"  its rankings are {'' if same else 'NOT '}those of the calm run", flush=True)


def measure(title: str, n: int, nodes, folder: Path, kill_in: str) -> np.ndarray:
    """The top 20 of all users."""
    from tiled import some_data

    from rankbench.cluster.ray_map import RayMap
    from rankbench.data.splits import Holdout
    from rankbench.evaluation.columns import rank_by_columns_on
    from rankbench.experiment.methods import registered
    from rankbench.solvers.tiled.recommender import fit_tiled

    X = some_data(n)
    rng = np.random.default_rng(1)
    target = X[rng.permutation(X.shape[0])]
    users = np.arange(USERS if X.shape[0] > USERS else X.shape[0], dtype=np.int32)
    holdout = Holdout(users, X[users], target[users])
    solver = registered().get("deql-l2")
    where, fired = RayMap(), threading.Event()
    flow = where.flow()

    def kill(done: int, total: int) -> None:
        if 2 * done >= total and not fired.is_set():
            fired.set()
            threading.Timer(0.2, lambda: nodes.kill_node(nodes.busy_node())).start()

    memory = _Memory(nodes)
    memory.start()
    start = time.perf_counter()
    quiet = lambda done, total: None  # noqa: E731
    member = (solver, solver.params(p=0.5, lam_prime=20.0, b=0.5))
    models = fit_tiled(X, [member], folder / "tiles", 10**11, progress=kill if kill_in == "factorisation" else quiet, flow=flow)
    fitted = time.perf_counter()
    # So narrow that some blocks are under way when a node dies.
    width = max(1, min(models[0].C.tile, (512 << 20) // (4 * n)) // 4)
    found = rank_by_columns_on(where, models, holdout, 20, width, progress=kill if kill_in == "columns" else quiet)
    ranked = time.perf_counter()
    memory.over.set()
    tile = models[0].C.tile
    idle = ((fitted - start) * flow.workers - flow.pool.busy) / flow.n_tasks
    alive = sum(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in nodes.raylets)
    print(
        f"{title}: n={n:,} nodes={len(nodes.raylets)} alive={alive} tile={tile:,} "
        f"fit_s={fitted - start:.1f} rank_s={ranked - fitted:.1f} "
        f"tasks={flow.n_tasks:,} beyond_work_ms={1000 * idle:.1f} "
        f"idle_gb={memory.first / 1e9:.2f} peak_gb={memory.most / 1e9:.2f}",
        flush=True,
    )
    return found[0].items


class _Memory(threading.Thread):
    """Watches the proportional set size of the driver and of all nodes' processes: `first`, before the work, and `most`."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.nodes, self.over = nodes, threading.Event()
        self.first = self.most = self.now()

    def now(self) -> int:
        found = 0
        for each in [
            psutil.Process(),
            *(each for node in range(len(self.nodes.raylets)) for each in self.nodes.processes(node)),
        ]:
            with suppress(psutil.Error):
                found += each.memory_full_info().pss
        return found

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.most = max(self.most, self.now())


if __name__ == "__main__":
    main()
