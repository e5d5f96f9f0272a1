"""Small fits side by side on one machine: what the threads of PyTorch, BLAS and OpenMP cost where there are too few processors.

    python benchmarks/oversubscription.py
    python benchmarks/oversubscription.py --fits 1 2 4 --threads 2 --method softmax --rounds 5

Each fit is a process of its own that has compiled and loaded everything before the clock starts. The arrangements are

    rankbench    `threads.pinned`: the libraries use one thread, this package's blocks use --threads
    passive      the libraries use --threads, too; idle OpenMP threads sleep (OMP_WAIT_POLICY=passive)
    active       the same; idle OpenMP threads wait in a loop (OMP_WAIT_POLICY=active), which is nearly OpenMP's default

A line for every number of fits and arrangement: the median and the worst seconds of a fit over all rounds, and the median
relative to that of the first line. Rounds are interleaved, so that other work on the machine meets all arrangements
alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

ARRANGEMENTS = {"rankbench": "passive", "passive": "passive", "active": "active"}


def child(arrangement: str, method: str, n_threads: int, epochs: int) -> None:
    """Get ready, wait for a line on stdin, fit once, and print the seconds."""
    import torch
    from threadpoolctl import threadpool_limits

    from rankbench.core.environment import Environment
    from rankbench.core.threads import pinned
    from rankbench.data.cards import load_card
    from rankbench.data.prepare import prepare
    from rankbench.experiment.fit import fit as fit_configs
    from rankbench.experiment.job import configure

    environment = Environment.from_env()
    X = prepare(load_card("synthetic", environment), environment).split.fit_matrix("train")

    def fit(epochs: int) -> None:
        chosen = configure(method, {"epochs": epochs, "patience": 0})
        fit_configs((chosen,), X, "float32", 0)

    with pinned(n_threads), threadpool_limits(1 if arrangement == "rankbench" else n_threads):
        torch.set_num_threads(1 if arrangement == "rankbench" else n_threads)
        fit(1)
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        fit(epochs)
        print(time.perf_counter() - began, flush=True)


def fits_side_by_side(n_fits: int, arrangement: str, options: argparse.Namespace) -> list[float]:
    """The seconds of each of `n_fits` fits that begin at the same time."""
    environment = os.environ | {"OMP_WAIT_POLICY": ARRANGEMENTS[arrangement]}
    command = [sys.executable, __file__, "--child", arrangement]
    command += ["--method", options.method, "--threads", str(options.threads), "--epochs", str(options.epochs)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, env=environment, **pipes) for _ in range(n_fits)]
    try:
        for each in children:
            if each.stdout.readline().strip() != "ready":
                raise SystemExit(f"a fit of the arrangement {arrangement} did not start")
        for each in children:
            each.stdin.write("go\n")
            each.stdin.flush()
        return [float(each.stdout.readline()) for each in children]
    finally:
        for each in children:
            each.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, nargs="+", default=[1, 2, 4], help="numbers of fits at a time")
    parser.add_argument("--threads", type=int, default=2, help="of each fit")
    parser.add_argument("--method", default="bpr", help="a method trained by gradient steps")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arrangements", nargs="+", choices=ARRANGEMENTS, default=list(ARRANGEMENTS))
    parser.add_argument("--child", choices=ARRANGEMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.method, options.threads, options.epochs)
        return
    print(
        f"{options.method}, {options.epochs} epochs of synthetic, {options.threads} threads a fit, {os.cpu_count()} processors"
    )
    seconds: dict[tuple[int, str], list[float]] = {}
    for number in range(1, options.rounds + 1):
        print(f"round {number}: load {os.getloadavg()[0]:.1f}", flush=True)
        for n_fits in options.fits:
            for arrangement in options.arrangements:
                seconds.setdefault((n_fits, arrangement), []).extend(fits_side_by_side(n_fits, arrangement, options))
    alone = statistics.median(next(iter(seconds.values())))
    print(f"{'fits':>4}  {'arrangement':12}  {'median s':>8}  {'worst s':>8}  {'median relative':>15}")
    for (n_fits, arrangement), values in seconds.items():
        median = statistics.median(values)
        print(f"{n_fits:4}  {arrangement:12}  {median:8.2f}  {max(values):8.2f}  {median / alone:15.1f}")


if __name__ == "__main__":
    main()
