"""Whether training has reached its end: nDCG@20 on the validation set after a budget of seconds, and after four times as many.

    python benchmarks/budgets.py movielens-1m --seconds 20
    python benchmarks/budgets.py gowalla --losses sl --seconds 120

Each loss is fitted twice on train, over the whole catalogue, from the vectors of a fitted iALS, with the settings below: once
with as many epochs as the budget holds, measured by the second epoch of a fit, and once with four times as many. The learning
rate falls to 0 over the epochs of each fit. Seconds are those of training, without evaluation. The best of the evaluated epochs
counts for both fits, and the share that the first reaches of the second is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np

from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.experiment.watch import ValidationSet
from rankbench.fitting.context import Context
from rankbench.fitting.step import Step
from rankbench.tracking.environment import describe_environment

TRAINING = {"objective": "catalogue", "schedule": "cosine", "patience": 0, "init": "ials"}
SETTINGS = {
    "movielens-1m": {"users_per_step": 96, "learning_rate": 0.01},
    "amazon-beauty": {"users_per_step": 240, "learning_rate": 0.005},
    "gowalla": {"users_per_step": 480, "learning_rate": 0.03},
}
LOSSES = {"sl": {"tau": 0.2}, "mine-plus": {"tau": 0.2, "lam": 1.1}, "bsl": {"tau1": 0.2, "tau2": 0.2}, "talos": {"tau": 0.1}}
LOSSES["ccl"] = {"w": 3.0, "margin": 0.4}
GOWALLA = {"tau": 0.1, "tau1": 0.1, "tau2": 0.1}  # its catalogue is ten times as large


def begun(X, method: str, values: dict) -> tuple[Iterator[Step], float]:
    """The epochs of a fit that has its start, and the seconds until then."""
    config = configure(method, values)
    began = time.perf_counter()
    generator = config.spec.steps(X, config.params, 0, np.float32, Context(), None)
    next(generator)
    return generator, time.perf_counter() - began


def fit(X, dataset: str, loss: str, epochs: int, measure: ValidationSet | None) -> Iterator[tuple[float, float]]:
    """Yield the seconds of training and the nDCG@20 after each epoch; it is 0 where it was not measured."""
    own = {name: GOWALLA.get(name, value) if dataset == "gowalla" else value for name, value in LOSSES[loss].items()}
    generator, start = begun(X, loss, {**TRAINING, **SETTINGS[dataset], **own, "epochs": epochs})
    every = max(1, epochs // 10)
    for number in range(1, epochs + 1):
        step = next(generator)
        looks = measure is not None and (number % every == 0 or number == epochs)
        yield start + step.seconds, measure(step.model(), "ndcg@20") if looks else 0.0


def epochs_within(seconds: float, *given) -> int:
    """The number of epochs that fit into so many seconds."""
    next(fit(*given, 100, None))  # compiles the code
    two = fit(*given, 100, None)
    (first, _), (second, _) = next(two), next(two)
    return max(1, int((seconds - first) / (second - first)) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=SETTINGS)
    parser.add_argument("--losses", nargs="*", default=[*LOSSES], choices=LOSSES)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    split = load(given.dataset, Environment.from_env()).split
    measure = ValidationSet(split.holdout("valid", "train"), 0)
    print(f"{given.dataset}, budget {given.seconds:.0f} s; revision {describe_environment()['revision']}")
    for loss in given.losses:
        epochs = epochs_within(given.seconds, split.train, given.dataset, loss)
        ends = []
        for each in (epochs, 4 * epochs):
            seconds, values = zip(*fit(split.train, given.dataset, loss, each, measure), strict=True)
            ends.append((seconds[-1], max(values)))
        short, long = ends
        print(
            f"{loss:10s} {epochs:4d} epochs, {short[0]:6.1f} s: {short[1]:.4f}   {4 * epochs:4d} epochs, {long[0]:6.1f} s: "
            f"{long[1]:.4f}   {short[1] / long[1]:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
