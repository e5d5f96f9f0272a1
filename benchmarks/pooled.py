"""A training step of SimpleX and YouTubeNet beside the plain PyTorch recipe, side by side in one process.

    python benchmarks/pooled.py                          both, on a random graph of about Gowalla's size
    python benchmarks/pooled.py simplex --scale 0.1 --batch 256

A step is the loss of a batch with negatives of each row's own, and all gradients, without the optimiser, which is the same. The
recipe is that of the authors' program: histories are padded to the longest one, tensors of the vectors of histories (batch,
length, dim) and of negatives (batch, negatives, dim) are gathered, and products are torch.bmm. Both sides have equal weights,
batch and negatives, and the difference of their losses is printed. They alternate, and medians count.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import scipy.sparse as sp
import torch
from encoders import random_graph
from torch import Tensor
from torch.nn import functional as F
from turns import in_turn

from rankbench.core.threads import pinned
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered
from rankbench.training.batches import Batch
from rankbench.training.trainer import Trainer

TASKS = {
    "simplex": ("ccl", {"model": "simplex", "aggregator": "user_attention", "shared_items": False, "margin": 0.2, "w": 250}),
    "youtubenet": ("sampled-softmax", {"model": "youtubenet", "correction": "nq_N", "sampler": "uniform-all"}),
}


class Padded:
    """The histories of users, each filled up to the longest with an item whose vector is zero."""

    def __init__(self, X: sp.csr_array):
        sizes = np.diff(X.indptr)
        self.items = torch.full((X.shape[0], int(sizes.max())), X.shape[1])
        row = np.repeat(np.arange(X.shape[0]), sizes)
        place = np.arange(X.nnz) - np.repeat(X.indptr[:-1], sizes)
        self.items[torch.from_numpy(row), torch.from_numpy(place)] = torch.from_numpy(X.indices.astype(np.int64))

    def without(self, users: Tensor, items: Tensor, n_items: int) -> Tensor:
        found = self.items[users]
        return torch.where(found == items[:, None], n_items, found)


def recipe(name: str, trainer: Trainer, batch: Batch, padded: Padded) -> Tensor:
    model, n_items = trainer.encoder, trainer.X.shape[1]
    users, items = torch.from_numpy(batch.users), torch.from_numpy(batch.items)
    negatives = torch.from_numpy(batch.negatives.items)
    history = padded.without(users, items, n_items)
    there = history < n_items
    table = model.items if name == "youtubenet" or model.history is None else model.history
    e = torch.cat([table, torch.zeros(1, table.shape[1])])[history]  # (B, length, d)
    candidates = model.items[torch.cat([items[:, None], negatives], dim=1)]  # (B, 1 + n, d)
    if name == "youtubenet":
        p = e.sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)
        scores = torch.bmm(candidates, p[:, :, None])[:, :, 0]
        return F.cross_entropy(scores, torch.zeros(len(p), dtype=torch.int64))
    u = model.users[users]
    logits = torch.bmm(torch.tanh(model.keys(e)), u[:, :, None])[:, :, 0].masked_fill(~there, -1e9)
    pooled = torch.bmm(logits.softmax(dim=1)[:, None], e)[:, 0] * there.any(dim=1)[:, None]
    p = F.normalize(model.p.own_weight * u + (1 - model.p.own_weight) * model.values(pooled), dim=1)
    scores = torch.bmm(F.normalize(candidates, dim=2), p[:, :, None])[:, :, 0]
    given = trainer.given.loss
    return (1 - scores[:, 0] + given.w * torch.relu(scores[:, 1:] - given.margin).mean(dim=1)).mean()


def compare(name: str, X: sp.csr_array, dim: int, batch_size: int, negatives: int, rounds: int, threads: int) -> None:
    loss, about = TASKS[name]
    values = about | {"embedding_dim": dim, "batch_size": batch_size, "n_negatives": negatives, "patience": 0}
    params = configure(loss, values).params
    trainer = Trainer(X, params, registered().get(loss), 0, np.float32, "cpu")
    padded, chosen = Padded(X), next(iter(trainer._chosen(1)))
    batch = trainer._batch(1, 0, trainer.users[chosen], trainer.items[chosen])
    trainer.learner.step = lambda factor: None  # the optimiser is the same on both sides
    losses = {}

    def ours() -> None:
        torch.set_num_threads(1)
        trainer.encoder.zero_grad()
        losses["product"] = float(trainer._step(batch, 1.0))

    def plain() -> None:
        torch.set_num_threads(threads)
        trainer.encoder.zero_grad()
        value = recipe(name, trainer, batch, padded)
        value.backward()
        losses["recipe"] = float(value.detach())

    mine, theirs = map(statistics.median, in_turn({"product": ours, "recipe": plain}, rounds).values())
    apart = abs(losses["product"] - losses["recipe"]) / abs(losses["recipe"])
    print(f"{name:12s} {mine:9.3f} {theirs:9.3f} {theirs / mine:7.1f}x   {apart:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="*", default=[*TASKS])
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graph relative to Gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--negatives", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    X = random_graph(given.scale)
    print(f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} interactions; batch {given.batch}, {given.negatives} negatives per row")
    print(f"{'s a step':12s} {'product':>9s} {'recipe':>9s} {'ratio':>8s}   relative difference of the losses")
    with pinned(given.threads):
        for name in given.encoders:
            compare(name, X, given.dim, given.batch, given.negatives, given.rounds, given.threads)


if __name__ == "__main__":
    main()
