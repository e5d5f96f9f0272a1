"""The linear family against plain NumPy and SciPy, side by side in one process.

    python benchmarks/linear.py [--items 5000] [--users 20000] [--per-user 60] [--repeats 3]

Prints a line a task: product seconds, peer seconds, their ratio, and how far the results are apart. Every task is timed in
both orders, since the first to touch fresh memory pays for it; the median over repeats counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from rankbench.data.blocks import csr_from_pairs, gram
from rankbench.data.cards import Generator
from rankbench.data.splits import Holdout
from rankbench.data.synthetic import generate
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.recommender import LinearRecommender
from rankbench.solvers.ease import EASE
from rankbench.solvers.linear import fit_shared
from rankbench.solvers.spec import registered

LAM = 100.0


def numpy_ease(X: sp.csr_array) -> np.ndarray:
    """EASE as its paper's listing has it."""
    G = (X.T @ X).toarray()
    G[np.diag_indices_from(G)] += LAM
    P = np.linalg.inv(G)
    B = P / -np.diag(P)
    B[np.diag_indices_from(B)] = 0
    return B


def product_ease(X: sp.csr_array) -> LinearRecommender:
    return fit_shared(gram(X), [(registered().get("ease"), EASE(LAM))])[0]


def numpy_ndcg(B: np.ndarray, holdout: Holdout, k: int, batch: int = 1000) -> float:
    """Scores by batches of users, argpartition, nDCG@k."""
    gains, values = 1 / np.log2(np.arange(2, k + 2)), []
    for start in range(0, len(holdout.users), batch):
        history, target = holdout.history[start : start + batch], holdout.target[start : start + batch].toarray()
        scores = history @ B
        scores[history.nonzero()] = -np.inf
        top = np.argpartition(-scores, k, axis=1)[:, :k]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1), 1)
        sizes = target.sum(axis=1).astype(int)
        rows = sizes > 0
        hits = np.take_along_axis(target, top, 1)[rows]
        values.append(hits @ gains / np.cumsum(gains)[np.minimum(sizes[rows], k) - 1])
    return float(np.concatenate(values).mean())


def product_ndcg(model: LinearRecommender, holdout: Holdout, k: int) -> float:
    (ranking,) = rank([model], holdout, k)
    counts = np.zeros(holdout.target.shape[1])
    return float(measure(ranking, holdout.target, counts, metric_set([f"ndcg@{k}"])).values[f"ndcg@{k}"].mean())


def compare(task: str, product: Callable, peer: Callable, apart: Callable, repeats: int) -> None:
    seconds: dict[str, list[float]] = {"product": [], "peer": []}
    results = {}
    for repeat in range(repeats):
        order = [("product", product), ("peer", peer)]
        for name, call in order if repeat % 2 == 0 else order[::-1]:
            start = time.perf_counter()
            results[name] = call()
            seconds[name].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(seconds[name]) for name in ("product", "peer"))
    difference = apart(results["product"], results["peer"])
    print(f"{task:28s} {ours:10.3f} {theirs:10.3f} {theirs / ours:8.2f} {difference:12.2e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("users", 20_000), ("items", 5_000), ("per-user", 60), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sizes = parser.parse_args()
    table = generate(Generator(users=sizes.users, items=sizes.items, interactions_per_user=sizes.per_user))
    user, item = table["user"].to_numpy(), table["item"].to_numpy()
    test = np.random.default_rng(0).random(len(user)) < 0.2
    shape = (sizes.users, sizes.items)
    X, target = csr_from_pairs(user[~test], item[~test], shape), csr_from_pairs(user[test], item[test], shape)
    holdout = Holdout(np.arange(sizes.users, dtype=np.int32), X, target)
    gram(X[:10]), product_ndcg(product_ease(X[:10]), holdout, 20)  # compile before the clock starts
    print(f"{sizes.users:,} users, {sizes.items:,} items, {X.nnz:,} train interactions; medians of {sizes.repeats}")
    print(f"{'task':28s} {'product s':>10s} {'peer s':>10s} {'ratio':>8s} {'apart':>12s}")
    compare(
        "Gram (SciPy)",
        lambda: gram(X).matrix,
        lambda: (X.T @ X).toarray(),
        lambda a, b: np.abs(a - b).max(),
        sizes.repeats,
    )
    compare(
        "EASE fit (NumPy)", lambda: product_ease(X), lambda: numpy_ease(X),
        lambda a, b: np.abs(a.dense_weights() - b).max(), sizes.repeats,
    )  # fmt: skip
    model, B = product_ease(X), numpy_ease(X)
    compare(
        "full ranking nDCG@20 (NumPy)", lambda: product_ndcg(model, holdout, 20), lambda: numpy_ndcg(B, holdout, 20),
        lambda a, b: abs(a - b), sizes.repeats,
    )  # fmt: skip


if __name__ == "__main__":
    main()
