"""Training MultiVAE against the published recipe in plain PyTorch, side by side in one process.

    python benchmarks/autoencoders.py                      Gowalla, 600-200-600, 500 users a step: some minutes
    python benchmarks/autoencoders.py movielens-1m --rounds 5 --threads 1

The recipe is the one of the authors' program: the dense matrix of the users' histories as input and target, log_softmax over
all items, and Adam on every weight. Both sides start from the same weights and get the same batches, dropout and noise. The
loss of the first batch is printed for all. Steps of the sides alternate, the order turned each round, and the median counts.
A third side is rankbench with precision=bfloat16.
Neither drawing the numbers nor making the dense matrix is part of a step. PyTorch has as many threads as the product.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from threadpoolctl import threadpool_limits
from torch.nn import functional as F

from rankbench.core.environment import Environment
from rankbench.core.threads import available_cpus, pinned
from rankbench.data.prepare import load
from rankbench.training.autoencoders.blocks import BlockNetwork
from rankbench.training.autoencoders.multivae import MultiVAE, batches, start_weights
from rankbench.training.autoencoders.network import Batch
from rankbench.training.memory import keep_freed

DTYPE = np.dtype(np.float32)


class Plain:
    """The recipe, with dense inputs and targets (B, n_items)."""

    def __init__(self, weights: dict[str, np.ndarray], p: MultiVAE):
        self.w = {name: torch.tensor(array).requires_grad_() for name, array in weights.items()}
        self.adam = torch.optim.Adam(self.w.values(), lr=p.learning_rate)

    def dense(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        shape = len(batch.counts), len(self.w["P2"])
        parts = [(values, batch.items, batch.indptr) for values in (batch.values, np.ones_like(batch.values))]
        inputs, targets = (torch.from_numpy(sp.csr_array(part, shape=shape).toarray()) for part in parts)
        return inputs, targets

    def step(self, batch: Batch, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        w = self.w
        h = torch.tanh(inputs @ w["Q1"] + w["q1"])
        mean, log_variance = torch.chunk(h @ w["Q2"] + w["q2"], 2, dim=1)
        z = mean + torch.from_numpy(batch.noise) * torch.exp(log_variance / 2)
        f = torch.tanh(z @ w["P1"] + w["p1"]) @ w["P2"].T + w["p2"]
        negative = -(F.log_softmax(f, dim=1) * targets).sum(dim=1).mean()
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=1).mean() / 2
        loss = negative + batch.beta * divergence
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item() * len(batch.counts)


def network(weights: dict[str, np.ndarray], p: MultiVAE, precision: Literal["float32", "bfloat16"]) -> BlockNetwork:
    own = {name: each.copy() for name, each in weights.items()}
    return BlockNetwork(own, p.learning_rate, p.lam, precision)


def steps(X: sp.csr_array, p: MultiVAE) -> Iterator[Batch]:
    """Full batches, without end."""
    for epoch in itertools.count(1):
        yield from (batch for batch in batches(X, p, 0, epoch, DTYPE) if len(batch.counts) == min(p.users_per_step, X.shape[0]))


def timed(step: Callable[..., float], *arguments) -> tuple[float, float]:
    began = time.perf_counter()
    loss = step(*arguments)
    return loss, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="gowalla")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=available_cpus())
    options = parser.parse_args()
    keep_freed()
    X, p = load(options.dataset, Environment.from_env()).split.fit_matrix("train"), MultiVAE()
    weights = start_weights(X.shape[1], p, 0, DTYPE)
    plain = Plain(weights, p)
    sides = {f"rankbench, {kind}": network(weights, p, kind) for kind in ("bfloat16", "float32")}
    n_steps = -(-np.count_nonzero(np.diff(X.indptr)) // p.users_per_step)
    seconds: dict[str, list[float]] = {name: [] for name in ("plain PyTorch", *sides)}
    print(f"{options.dataset}: {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} interactions; {options.threads} threads")
    for turn, batch in enumerate(itertools.islice(steps(X, p), options.rounds + 1)):
        dense, losses = plain.dense(batch), {}
        for name in sorted(seconds, reverse=turn % 2 == 1):
            if name in sides:
                with pinned(options.threads), threadpool_limits(1, "blas"):
                    losses[name], spent = timed(sides[name].step, batch)
            else:
                torch.set_num_threads(options.threads)
                losses[name], spent = timed(plain.step, batch, *dense)
            if turn:  # the first round warms up
                seconds[name].append(spent)
        if turn == 0:
            print("loss of the first batch: " + "; ".join(f"{name} {loss:.6g}" for name, loss in losses.items()))
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}
    for name, median in medians.items():
        low, high = min(seconds[name]), max(seconds[name])
        print(
            f"{name:19} {median:.3f} s a step ({low:.3f} to {high:.3f}), {median * n_steps:.0f} s an epoch of {n_steps} steps, "
            f"{medians['plain PyTorch'] / median:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
