"""The inverse by tiles on hosts whose lines and processors have a known speed, measured beside simulated; and predictions.

    python benchmarks/inverse_scale.py --hosts 1 4 --gigabits 10 --sizes 15000 --share 0.2
    python benchmarks/inverse_scale.py --predict

The first makes hosts of network namespaces on this machine, which takes root and control groups of version 1, each with
`--share` of a processor and a line of `--gigabits`. On each number of hosts it first measures what the simulator takes as
constants, all of them apart from any inverse: the speed of products, and what a task, a copy and a transfer take. It prints
the seconds of the inverse beside those that the simulator says, the error of the simulator, and the ratio to the first number
of hosts. The driver has a processor of its own. The files lie in /dev/shm.

`--predict` prints the table of docs/results/scale.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
sys.path.insert(0, str(HERE))

# Items, nodes of 16 processors, and bytes of memory of each.
CASES = [
    (100_000, 1, 256e9), (100_000, 4, 128e9), (100_000, 16, 128e9), (300_000, 64, 128e9), (1_000_000, 64, 512e9),
    (1_000_000, 256, 128e9),
]  # fmt: skip
# GFLOP/s per processor, of one alone on this machine and a guess where sixteen share a memory; and Gbit/s.
SPEEDS = [(170, 10), (170, 25), (100, 10)]
LEAST_SECONDS = 3.0  # seconds over which each constant is measured, at least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--gigabits", type=float, nargs="+", default=[10.0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[15_000])
    parser.add_argument("--share", type=float, default=0.2, help="of a processor, for each host")
    parser.add_argument("--tile", type=int, help="default: as the product chooses")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--join", nargs=2, help=argparse.SUPPRESS)  # what is started on the first host: address and folder
    given = parser.parse_args()
    if given.join:
        join(given, *given.join)
    elif given.predict:
        predict()
    else:
        measure(given)


def measure(given: argparse.Namespace) -> None:
    from hosts import hosts

    errors, first = [], {}
    for gigabits in given.gigabits:
        for number in given.hosts:
            with (
                tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
                hosts(number, object_store_memory=1 << 30, gigabits=gigabits, grouped=True) as made,
            ):
                words = [sys.executable, __file__, "--join", made.address, folder, "--gigabits", str(gigabits)]
                words += ["--sizes", *map(str, given.sizes), "--share", str(given.share)]
                words += ["--tile", str(given.tile)] if given.tile else []
                driver = made.start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                assert driver.stdin and driver.stdout
                for line in driver.stdout:
                    if line == "warm\n":
                        made.limit(given.share)
                        driver.stdin.write(f"{background(made)}\n")
                        driver.stdin.flush()
                        continue
                    found = json.loads(line)
                    if "constants" in found:
                        print(f"  {number} hosts, {gigabits:g} Gbit/s: {found['constants']}", flush=True)
                        continue
                    ratio = first.setdefault((gigabits, found["n"]), found["seconds"]) / found["seconds"]
                    error = found["simulated"] / found["seconds"] - 1
                    errors.append(error)
                    print(
                        f"n={found['n']:,} hosts={number} gigabits={gigabits:g} tile={found['tile']:,} "
                        f"measured={found['seconds']:.1f}s simulated={found['simulated']:.1f}s error={100 * error:+.0f}% "
                        f"ratio={ratio:.2f} sent_gb={found['sent']:.2f} tasks={found['tasks']:,} "
                        f"busy={found['busy']:.1f}s",
                        flush=True,
                    )
                if driver.wait():
                    sys.exit("the driver failed")
    size = sorted(abs(error) for error in errors)
    print(f"error of the simulator: median {100 * size[len(size) // 2]:.0f} %, at most {100 * size[-1]:.0f} %")


def join(given: argparse.Namespace, address: str, folder: str) -> None:
    """The driver: warm all workers, wait for the limit, measure the constants, and then inverses of all sizes."""
    from rankbench.cluster.session import session

    with session(address):
        from tiled import some_data

        from rankbench.cluster.ray_map import RayMap
        from rankbench.fitting.method import Shift
        from rankbench.solvers.tiled.flow import cluster_tile
        from rankbench.solvers.tiled.gram import ShiftedGram
        from rankbench.solvers.tiled.inverse import tiled_inverse
        from rankbench.solvers.tiled.simulation import simulate

        shift, flow = Shift(0.0, 20.0), RayMap().flow()
        for at in range(2):
            tiled_inverse(some_data(3000), shift, Path(folder) / f"warm{at}", 10**11, tile=300, flow=flow)
        data = [some_data(n) for n in given.sizes]
        print("warm", flush=True)
        idle = float(sys.stdin.readline())
        tile = given.tile or cluster_tile(given.sizes[0], flow.workers, flow.pool.threads)
        hardware = constants(flow.pool, given, tile, idle)
        for n, X in zip(given.sizes, data, strict=True):
            at = time.perf_counter()
            flow = RayMap().flow()
            C = tiled_inverse(X, shift, Path(folder) / str(n), 10**11, tile=given.tile, flow=flow)
            seconds = time.perf_counter() - at
            size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
            paper = simulate(n, hardware, ShiftedGram(X, shift, np.dtype(np.float32)).pairs, size, tile=C.tile)
            told = {"n": n, "tile": C.tile, "seconds": seconds, "simulated": paper.seconds, "sent": paper.sent / 1e9}
            print(
                json.dumps(told | {"tasks": flow.n_tasks, "busy": flow.pool.busy}),
                flush=True,
            )


def background(made: Any) -> float:
    """Share of a processor that Ray itself takes on a host, which every host has to spare."""
    before, began = [made.used(host) for host in range(len(made.names))], time.perf_counter()
    time.sleep(10)
    each = [(made.used(host) - was) / (time.perf_counter() - began) for host, was in enumerate(before)]
    return sum(each) / len(each)


def constants(pool: Any, given: argparse.Namespace, tile: int, idle: float) -> Any:
    """The `Hardware` that these hosts are, by tasks of each kind that keep one node busy, or a line."""
    from rankbench.fitting.flow import change
    from rankbench.fitting.simulated_pool import Hardware
    from rankbench.solvers.tiled.kernels import KERNELS

    share = given.share - idle  # what is left for tasks

    def await_all(tasks: list[Any]) -> None:
        left = set(tasks)
        while left:
            left -= set(pool.finished(wait=True))

    def arrays(node: int, number: int, rows: int) -> list[Any]:
        started = [pool.start(node, 1, True, Fill(rows)) for _ in range(number)]
        await_all([task for task, _ in started])
        return [made[0] for _, made in started]

    def seconds(start: Any) -> float:
        """Of one task, among enough of them that follow each other."""
        number, began = 0, time.perf_counter()
        while time.perf_counter() - began < LEAST_SECONDS:
            await_all([start() for _ in range(10)])
            number += 10
        return (time.perf_counter() - began) / number

    (small,), (large, left, right) = arrays(0, 1, 8), arrays(0, 3, tile)
    began = time.perf_counter()
    tasks = [pool.start(0, 1, True, change, [], small)[0] for _ in range(100)]
    dispatch = (time.perf_counter() - began) / 100
    await_all(tasks)
    overhead = share * seconds(lambda: pool.start(0, 1, True, change, [], small)[0])
    began = time.perf_counter()
    for _ in range(20):
        await_all([pool.start(0, 1, True, change, [], small)[0]])
    latency = max(0.0, ((time.perf_counter() - began) / 20 - overhead / share - dispatch) / 2)
    copied = share * seconds(lambda: pool.start(0, 1, True, change, [], large)[0]) - overhead
    product = [(KERNELS["add_product"], 2)] * 4
    worked = share * seconds(lambda: pool.start(0, 1, True, change, product, large, *[left, right] * 4)[0]) - copied - overhead
    wire = 0.0
    if len(pool.slots) > 1:
        number = 24
        moved = arrays(0, number, tile)
        began = time.perf_counter()
        await_all([pool.start(1, 0, True, Touch(), each)[0] for each in moved])
        each = (time.perf_counter() - began) / number - overhead / share
        wire = max(share * each / (4 * tile**2), 1e-11)
    hardware = Hardware(
        nodes=len(pool.slots), cores=1, memory=(1 << 30) / 0.3, gigabits=given.gigabits[0], rate=4 * 2 * tile**3 / worked,
        speed=given.share, background=idle, dispatch=dispatch, latency=latency, overhead=overhead,
        copied=copied / (4 * tile**2), wire=wire or 1e-9, disk_on_wire=False,
    )  # fmt: skip
    names = ("background", "rate", "dispatch", "latency", "overhead", "copied", "wire")
    print(json.dumps({"constants": ", ".join(f"{name}={getattr(hardware, name):.2g}" for name in names)}), flush=True)
    return hardware


class Fill:
    """An array of `rows` rows, made where this is called."""

    def __init__(self, rows: int):
        self.rows = rows

    def __call__(self) -> list[np.ndarray]:
        return [np.ones((self.rows, self.rows), np.float32, order="F")]


class Touch:
    """What needs an array on its node, and does nothing with it."""

    def __call__(self, array: np.ndarray) -> list[np.ndarray]:
        return []


def predict() -> None:
    """The table of docs/results/scale.md, row by row."""
    from rankbench.fitting.simulated_pool import Hardware
    from rankbench.solvers.tiled.simulation import ERROR, simulate

    print("| items | nodes | GFLOP/s | Gbit/s | seconds | by its error | arithmetic | GB into a node | GB on a node | tasks |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n, nodes, memory in CASES:
        for rate, gigabits in SPEEDS:
            # 100 interactions of each item, and users of 100 interactions.
            found = simulate(n, Hardware(nodes, 16, memory, gigabits, rate * 1e9), pairs=5e3 * n, data=900.0 * n)
            print(
                f"| {n:,} | {nodes} x {memory / 1e9:.0f} GB | {rate} | {gigabits} | {found.seconds:,.0f} "
                f"| {found.expected[0]:,.0f} to {found.expected[1]:,.0f} "
                f"| {100 * found.efficiency:.0f} % | {found.sent / nodes / 1e9:.0f} | {found.held / 1e9:.0f} "
                f"| {found.tasks:,} |",
                flush=True,
            )
    print(f"error of the simulator: {ERROR}")


if __name__ == "__main__":
    main()
