"""nDCG@20 on the validation set against seconds of training: ways to train one loss, beside the recipe in plain PyTorch.

    python benchmarks/time_to_quality.py amazon-beauty --out quality.png
    python benchmarks/time_to_quality.py gowalla --tau 0.1 --seconds 240 --out quality.png

The loss is SL on MF with 64 dimensions, fitted on train. Every way trains for the same number of seconds; those with a falling
learning rate get as many epochs as they do in that time, measured by their second epoch. Evaluation is not counted. The recipe
is the one of the authors' programs: 1,024 own negatives for each positive of a batch of 1,024, and torch.optim.Adam over both
tables. Printed for each way: the best nDCG@20, and the seconds until 95 % and 99.5 % of the best of all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from budgets import begun
from torch.nn import functional as F

from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.experiment.watch import ValidationSet
from rankbench.fitting.recommenders import FactorRecommender

DIM, BATCH, NEGATIVES = 64, 1024, 1024
SAMPLED = {
    "n_negatives": NEGATIVES,
    "batch_size": BATCH,
    "shared_negatives": True,
    "sampler": "uniform-all",
    "learning_rate": 0.01,
}
CATALOGUE = {"objective": "catalogue", "learning_rate": 0.1, "schedule": "cosine"}
WAYS = {
    "sampled, row-adam": SAMPLED | {"optimizer": "row-adam"},
    "sampled, adam": SAMPLED,
    "catalogue": CATALOGUE,
    "catalogue from iALS": CATALOGUE | {"init": "ials"},
}
PEER = "plain PyTorch"
Point = tuple[float, float]  # seconds of training, and nDCG@20


def product(X, values: dict, tau: float, limit: float, measure: ValidationSet) -> Iterator[Point]:
    def fit(epochs: int) -> tuple[Iterator, float]:
        return begun(X, "sl", {"embedding_dim": DIM, "tau": tau, "epochs": epochs, "patience": 0, **values})

    epochs, start = 10_000, 0.0
    if values.get("schedule") == "cosine":
        generator, start = fit(100)
        first, second = next(generator), next(generator)
        epochs = max(2, int((limit - start) / (second.seconds - first.seconds)))
    generator, start = fit(epochs)
    for _ in range(epochs):
        step = next(generator)
        yield start + step.seconds, measure(step.model(), "ndcg@20")
        if start + step.seconds > limit:
            return


def plain(X, tau: float, limit: float, measure: ValidationSet) -> Iterator[Point]:
    users, items = (torch.from_numpy(each.astype(np.int64)) for each in X.nonzero())
    tables = [torch.nn.Parameter(0.1 * torch.randn(n, DIM, generator=torch.Generator().manual_seed(n))) for n in X.shape]
    optimizer, seconds = torch.optim.Adam(tables, lr=0.01), 0.0
    while seconds < limit:
        began = time.perf_counter()
        for chosen in torch.randperm(len(users)).split(BATCH):
            negatives = torch.randint(X.shape[1], (len(chosen), NEGATIVES))
            p, q, others = (
                F.normalize(each, dim=-1) for each in (tables[0][users[chosen]], tables[1][items[chosen]], tables[1][negatives])
            )
            scores = torch.einsum("bd,bnd->bn", p, others) - (p * q).sum(-1)[:, None]
            optimizer.zero_grad()
            torch.logsumexp(scores / tau, dim=1).mean().backward()
            optimizer.step()
            if seconds + time.perf_counter() - began > limit:
                break
        seconds += time.perf_counter() - began
        U, V = (F.normalize(table.detach(), dim=1).numpy() for table in tables)
        yield seconds, measure(FactorRecommender(U, V), "ndcg@20")


def draw(curves: dict[str, list[Point]], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), label=name, marker=".", markersize=4, linewidth=1.2)
    axes.set(xlabel="seconds of training", ylabel="nDCG@20 on validation", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--tau", type=float, default=0.15)
    parser.add_argument("--seconds", type=float, default=60.0, help="training time of each way")
    parser.add_argument("--out", type=Path, help="PNG; the points are written beside it as JSON")
    given = parser.parse_args()
    split = load(given.dataset, Environment.from_env()).split
    measure = ValidationSet(split.holdout("valid", "train"), 0)
    curves = {}
    for name in (*WAYS, PEER):
        ways = plain(split.train, given.tau, given.seconds, measure) if name == PEER else None
        points = ways or product(split.train, WAYS[name], given.tau, given.seconds, measure)
        curves[name] = [(round(seconds, 2), round(value, 5)) for seconds, value in points]
    best = max(value for points in curves.values() for _, value in points)
    print(f"{given.dataset}: nDCG@20 on validation within {given.seconds:.0f} s of training; best of all {best:.4f}")
    for name, points in curves.items():
        until = [next((f"{s:.1f} s" for s, value in points if value >= share * best), "not reached") for share in (0.95, 0.995)]
        print(f"{name:22s} best {max(value for _, value in points):.4f}   95 %: {until[0]:12s} 99.5 %: {until[1]}")
    if given.out:
        draw(curves, f"SL on {given.dataset}, {DIM} dimensions", given.out)
        given.out.with_suffix(".json").write_text(json.dumps(curves, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
