"""The linear family against plain NumPy, SciPy and implicit, side by side in one process.

    python benchmarks/linear.py                 a few minutes: sets of the size of MovieLens 1M and 10M
    python benchmarks/linear.py --large         and the whole EASE fit on a set of the size of MovieLens 20M: ten minutes, 16 GB

Prints a line a task: seconds and peak memory of product and peer, the ratios, and how far the results are apart. Each task is
timed in both orders, since the first to touch fresh memory pays for it, and the median counts; the large fit once in each.
Peak memory is what a task adds to the resident memory before it. implicit's evaluator is timed as it comes and with BLAS in
one thread, as its authors advise; the faster of the two is the peer.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.data.blocks import csr_from_pairs, gram
from rankbench.data.splits import Holdout
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.experiment.methods import registered
from rankbench.fitting.recommenders import FactorRecommender, LinearRecommender
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.linear.deql import DEQLL2
from rankbench.solvers.linear.ease import EASE
from rankbench.solvers.sparse.itemknn import ItemKNN, itemknn
from rankbench.tracking.environment import describe_environment, peak_memory, reset_peak_memory

LAM = 300.0
SIZES = {"1M": (6_040, 3_706, 600_000), "10M": (69_815, 9_888, 8_240_000), "20M": (136_677, 20_108, 9_990_000)}


def movielens_sized(name: str, seed: int = 0) -> sp.csr_array:
    """Users, items and interactions of a MovieLens set; log-normal activity, popularity falling as 1/rank."""
    n_users, n_items, n_interactions = SIZES[name]
    rng = np.random.default_rng(seed)
    activity = rng.lognormal(0, 1.2, n_users)
    popularity = 1 / (10.0 + np.arange(n_items))
    # Repeated pairs fall together, so more are drawn than are wanted.
    activity = np.maximum(5, 1.4 * activity / activity.sum() * n_interactions).astype(int)
    users = np.repeat(np.arange(n_users), activity)
    items = rng.permutation(n_items)[rng.choice(n_items, len(users), p=popularity / popularity.sum())]
    return csr_from_pairs(users, items, (n_users, n_items))


@dataclass
class Side:
    seconds: list[float]
    gigabytes: list[float]
    result: object = None

    def run(self, call: Callable) -> None:
        self.result = None
        reset_peak_memory()
        before, start = psutil.Process().memory_info().rss, time.perf_counter()
        self.result = call()
        self.seconds.append(time.perf_counter() - start)
        self.gigabytes.append(max(0, peak_memory() - before) / 1e9)


def compare(task: str, product: Callable, peer: Callable, apart: Callable | None, repeats: int = 4) -> None:
    """Time both, the order turned each time, and print a line. `apart` compares the results, where both can be held at once."""
    sides = {"product": Side([], []), "peer": Side([], [])}
    calls = {"product": product, "peer": peer}
    for repeat in range(repeats):
        order = ["product", "peer"] if repeat % 2 == 0 else ["peer", "product"]
        for name in order:
            sides[name].run(calls[name])
            if apart is None:
                sides[name].result = None
    ours, theirs = (statistics.median(side.seconds) for side in sides.values())
    memory, peer_memory = (max(side.gigabytes) for side in sides.values())
    difference = "" if apart is None else f"{apart(sides['product'].result, sides['peer'].result):.1e}"
    print(
        f"{task:46s} {ours:9.3f} {theirs:9.3f} {theirs / ours:7.2f}x {memory:8.2f} {peer_memory:8.2f} {difference:>10s}",
        flush=True,
    )


def numpy_ease(X: sp.csr_array) -> np.ndarray:
    """EASE as its paper's listing has it."""
    G = (X.T @ X).toarray()
    G[np.diag_indices_from(G)] += LAM
    P = np.linalg.inv(G)
    B = P / -np.diag(P)
    B[np.diag_indices_from(B)] = 0
    return B


def fitted(X: sp.csr_array, method: str, params) -> LinearRecommender:
    return fit_shared(gram(X), [(registered().get(method), params)])[0]


def ease(X: sp.csr_array) -> LinearRecommender:
    return fitted(X, "ease", EASE(LAM))


def deql(X: sp.csr_array) -> LinearRecommender:
    return fitted(X, "deql-l2", DEQLL2(p=0.4, b=0.5, lam_prime=LAM))


def fitting_tasks(name: str, X: sp.csr_array) -> None:
    compare(f"Gram {name} | SciPy", lambda: gram(X).matrix, lambda: (X.T @ X).toarray(), largest_difference)
    compare(
        f"EASE {name} | NumPy", lambda: ease(X), lambda: numpy_ease(X), lambda a, b: largest_difference(a.dense_weights(), b)
    )
    compare(f"ItemKNN {name} | implicit", lambda: itemknn(X, ItemKNN(100, 0.0), 0), lambda: implicit_cosines(X), None)
    compare(f"DEQL(L2) {name} | our EASE", lambda: deql(X), lambda: ease(X), None)


def implicit_cosines(X: sp.csr_array) -> sp.csr_matrix:
    """The 100 most similar items of each item, and the item itself."""
    from implicit.nearest_neighbours import CosineRecommender

    model = CosineRecommender(K=101)
    model.fit(sp.csr_matrix((X.data, X.indices, X.indptr), X.shape), show_progress=False)
    return model.similarity


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def ranking_task(name: str) -> None:
    """Full ranking by factors, k = 20, all metrics, against implicit's evaluator."""
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.evaluation import ranking_metrics_at_k

    X = movielens_sized(name)
    entries = X.tocoo()
    held_out = np.random.default_rng(1).random(X.nnz) < 0.2
    train, test = (csr_from_pairs(entries.row[m], entries.col[m], X.shape) for m in (~held_out, held_out))
    rng = np.random.default_rng(2)
    U, V = (rng.standard_normal((n, 64), np.float32) for n in X.shape)
    counts = np.bincount(train.indices, minlength=X.shape[1])
    holdout = Holdout(np.arange(X.shape[0], dtype=np.int32), train, test, item_counts=counts)
    wanted = metric_set(cutoffs=(20,))

    def product() -> float:
        (found,) = rank([FactorRecommender(U, V)], holdout, 20)
        return float(measure(found, holdout, wanted).values["ndcg@20"].mean())

    warnings.filterwarnings("ignore", module="implicit")
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(factors=64)
    model.user_factors, model.item_factors = U, V
    seen, target = (
        sp.csr_matrix((m.data, m.indices.astype(np.int32), m.indptr.astype(np.int32)), m.shape) for m in (train, test)
    )

    def implicit() -> float:
        return ranking_metrics_at_k(model, seen, target, K=20, show_progress=False)["ndcg"]

    def implicit_one_blas_thread() -> float:
        with threadpool_limits(1, "blas"):
            return implicit()

    for label, peer in (("implicit", implicit), ("implicit, 1 BLAS thread", implicit_one_blas_thread)):
        compare(f"ranking {name}, k=20, all metrics | {label}", product, peer, lambda a, b: abs(a - b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="the whole EASE fit at MovieLens 20M's size too")
    large = parser.parse_args().large
    small = movielens_sized("1M")
    gram(small[:10]), ease(small[:10])  # compile before the clock starts
    about = describe_environment()
    print(f"{about['machine']['cpu']}, {about['machine']['cores']} cores; {', '.join(about['blas'])}; {about['revision']}")
    print(f"{'task':46s} {'product s':>9s} {'peer s':>9s} {'faster':>8s} {'GB':>8s} {'peer GB':>8s} {'apart':>10s}")
    for name in ("1M", "10M"):
        fitting_tasks(name, movielens_sized(name))
    for name in ("10M", "20M"):
        ranking_task(name)
    if large:
        X = movielens_sized("20M")
        compare("DEQL(L2) 20M | our EASE", lambda: deql(X), lambda: ease(X), None, repeats=2)
        compare("EASE 20M | NumPy", lambda: ease(X), lambda: numpy_ease(X), None, repeats=2)


if __name__ == "__main__":
    main()
