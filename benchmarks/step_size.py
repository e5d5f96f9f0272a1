"""Which learning rate suits which size of a step: nDCG@20 on validation of SL over the catalogue, after equal epochs.

    python benchmarks/step_size.py movielens-1m --rates 0.0025 0.005 0.01 0.02
    python benchmarks/step_size.py amazon-beauty --rates 0.003 0.006 0.012

Each row has the users of a step, and for each learning rate the metric; the rate falls to 0 along a cosine. The last column has
the rate that `reference_batch` gives where the first row's best rate is right.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from budgets import begun

from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.experiment.watch import ValidationSet

USERS = (96, 480, 1920)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()
    split = load(given.dataset, Environment.from_env()).split
    measure = ValidationSet(split.holdout("valid", "train"), 0)
    training = {
        "objective": "catalogue",
        "epochs": given.epochs,
        "schedule": "cosine",
        "patience": 0,
        "init": "xavier",
        "tau": 0.15,
    }
    print(f"{given.dataset}, {given.epochs} epochs; learning rates {given.rates}")
    first_best = None
    for users in USERS:
        found = []
        for rate in given.rates:
            fit, _ = begun(split.train, "sl", training | {"users_per_step": users, "learning_rate": rate})
            *_, last = itertools.islice(fit, given.epochs)
            found.append(measure(last.model(), "ndcg@20"))
        first_best = first_best or given.rates[int(np.argmax(found))]
        print(
            f"{users:5d}  {'  '.join(f'{value:.4f}' for value in found)}   {first_best * (users / USERS[0]) ** 0.5:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
