"""Epochs with subnormal numbers as zeros, as fits have them, against the same epochs with them, side by side in one process.

    python benchmarks/subnormals.py                 LLPAUC and BPR on Amazon Beauty, dot products of long vectors: five minutes
    python benchmarks/subnormals.py --epochs 3      fewer epochs before the first that counts

Both sides start from the same vectors and draw the same negatives. Their epochs alternate, the order turned each time, and the
median counts. SL has cosines, which cannot saturate: it shows what the setting costs where there is nothing to gain.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.threads import pinned
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered as losses
from rankbench.tracking.environment import describe_environment
from rankbench.training import trainer
from rankbench.training.subnormals import flushed
from rankbench.training.trainer import Trainer

LONG = {"embedding_dim": 64, "batch_size": 1024, "init": "normal", "init_scale": 1.0, "learning_rate": 0.1}
TASKS = {
    "llpauc": {
        "n_negatives": 1024,
        "shared_negatives": True,
        "sampler": "uniform-all",
        "alpha": 0.6,
        "beta": 0.9,
        "init_scale": 0.01,
    },
    "bpr": {"n_negatives": 1},
    "sl": {"n_negatives": 1024, "shared_negatives": True, "sampler": "uniform-all", "tau": 0.1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--dataset", default="amazon-beauty")
    parser.add_argument("--epochs", type=int, default=15, help="epochs before the first that counts")
    parser.add_argument("--rounds", type=int, default=4, help="epochs that count")
    given = parser.parse_args()
    X = load(given.dataset, Environment.from_env()).split.train
    print(describe_environment())
    for method in given.methods or TASKS:
        compare(X, method, given.epochs, given.rounds)


def compare(X, method: str, before: int, rounds: int) -> None:
    params = configure(method, LONG | TASKS[method]).params
    sides = {"zeros": flushed, "subnormals": nullcontext}
    fits = {side: Trainer(X, params, losses().get(method), 0, np.float32, "cpu") for side in sides}
    seconds = {side: [] for side in sides}
    with pinned(1):
        for number in range(1, before + rounds + 1):
            for side in [*sides][:: 1 if number % 2 else -1]:
                trainer.flushed = sides[side]
                began = time.perf_counter()
                mean = fits[side].epoch(number, 1.0)
                if number > before:
                    seconds[side].append(time.perf_counter() - began)
    ours, other = (statistics.median(seconds[side]) for side in sides)
    print(f"{method:<8} epoch {ours:.2f} s with zeros, {other:.2f} s with subnormals: {other / ours:.2f}x (loss {mean:.4f})")


if __name__ == "__main__":
    main()
