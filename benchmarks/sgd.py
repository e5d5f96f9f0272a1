"""Training by gradient steps against the published recipe in plain PyTorch, side by side in one process.

    python benchmarks/sgd.py                      all tasks on Gowalla: ten minutes
    python benchmarks/sgd.py negatives --n 100    one task
    python benchmarks/sgd.py memory               peak memory of softmax over the whole catalogue, in a process of its own

The recipe is the one of the authors' programs: embedding tables, negatives drawn for each positive, one gather of a
(B, n, d) tensor, dense Adam over both tables. Both sides have the same batch, dimension, loss (SL, cosine, tau 0.1) and vectors
to start from, and the first batch's loss is printed for both: the same negatives give the same number. Steps of the two
alternate in blocks, the order turned each round; the median of the rounds counts, and a block of warming up does not. Drawing
the negatives is part of a step on either side.

catalogue: losses over all items by users (objective=catalogue), against cross_entropy of the (B, n_items) matrix of cosines, in
positives a second. The time of the three products that such a step needs, at the rate of a large product in the same run, is
printed beside. adam: a step of dense Adam at the cost of the touched rows, against row-adam and a pass over the tables.

shared: losses on 2,048 negatives of the batch, or its own items, against one product of the batch with them and autograd.

softmax: over all items, against cross_entropy of the (B, n_items) matrix. lightgcn: a whole step of BPR with one negative,
three layers, against torch.sparse.mm on the coalesced graph and autograd.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from encoders import Graph, mean_of_layers
from torch.nn import functional as F
from turns import in_turn, turns

from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered as losses
from rankbench.tracking.environment import describe_environment, peak_memory
from rankbench.training.negatives import Negatives
from rankbench.training.trainer import Trainer

DIM, BATCH, TAU, RATE = 64, 1024, 0.1, 0.01
PEER = "plain PyTorch"
_WARM = 150  # steps of the product before the first round: idle steps before the 128th are added up one by one


def trainer(X: sp.csr_array, method: str, **params) -> Trainer:
    given = {"embedding_dim": DIM, "batch_size": BATCH, "learning_rate": RATE} | params
    return Trainer(X, configure(method, given).params, losses().get(method), 0, np.float32, "cpu")


def batches(ours: Trainer) -> Iterator[np.ndarray]:
    """Positions of the interactions of a batch, without end."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(ours.users))
        yield from (order[start : start + BATCH] for start in range(0, len(order) - BATCH, BATCH))


def stepping(ours: Trainer, order: Iterator[np.ndarray]) -> Callable[[int], None]:
    """What makes so many steps of the product, on further batches each time."""
    numbers = iter(range(10**9))

    def steps(count: int) -> None:
        for _ in range(count):
            chosen = next(order)
            ours._step(ours._batch(1, next(numbers), ours.users[chosen], ours.items[chosen]), 1.0)

    return steps


class Plain:
    """The recipe. `tables` to start from; `score(U, V, users, items, negatives)` the loss of a batch."""

    def __init__(self, ours: Trainer, n: int):
        self.ours, self.n = ours, n
        self.tables = [table.detach().clone().requires_grad_() for table in (ours.encoder.users, ours.encoder.items)]
        self.optimizer = torch.optim.Adam(self.tables, lr=RATE)

    def negatives(self) -> torch.Tensor:
        return torch.randint(self.ours.X.shape[1], (BATCH, self.n))

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        U, V = self.tables
        p, q, others = (F.normalize(each, dim=-1) for each in (U[users], V[items], V[negatives]))
        pos, neg = (p * q).sum(-1), torch.einsum("bd,bnd->bn", p, others)
        return torch.logsumexp((neg - pos[:, None]) / TAU, dim=1).mean()

    def step(self, chosen: np.ndarray) -> None:
        users, items = (torch.from_numpy(side[chosen]) for side in (self.ours.users, self.ours.items))
        self.optimizer.zero_grad()
        self.loss(users, items, self.negatives()).backward()
        self.optimizer.step()


class PlainSoftmax(Plain):
    def negatives(self) -> torch.Tensor:
        return torch.empty(0)

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        U, V = self.tables
        return F.cross_entropy(U[users] @ V.T, items)


class PlainLightGCN(Plain):
    def __init__(self, ours: Trainer, n: int):
        super().__init__(ours, n)
        self.graph = Graph(ours.X)

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        U, V = self.graph.split(mean_of_layers(torch.cat(self.tables), self.graph.matrix))
        pos = (U[users] * V[items]).sum(-1)
        neg = torch.einsum("bd,bnd->bn", U[users], V[negatives])
        return F.softplus(neg - pos[:, None]).mean()


def same_loss(ours: Trainer, plain: Plain) -> tuple[float, float]:
    """The loss of one batch with the same negatives, before any step."""
    chosen = next(batches(ours))
    batch = ours._batch(1, 0, ours.users[chosen], ours.items[chosen])
    users, items = (torch.from_numpy(side) for side in (batch.users, batch.items))
    drawn = batch.negatives
    negatives = torch.from_numpy(drawn.items) if isinstance(drawn, Negatives) else torch.empty(0)
    if len(negatives) == 1 and not isinstance(plain, PlainShared):
        negatives = negatives.expand(BATCH, -1)
    expected = float(plain.loss(users, items, negatives).detach())
    kept = ours.arrays()
    found = ours._step(batch, 0.0)
    ours.restore(kept)
    return found, expected


def compare(task: str, ours: Trainer, plain: Plain, steps: tuple[int, int], rounds: int) -> None:
    """Print positives a second of both. `steps`: of ours and of the peer in a round."""
    found, expected = same_loss(ours, plain)
    order = batches(ours)
    product = stepping(ours, order)
    product(_WARM)

    def peer() -> None:
        for _ in range(steps[1]):
            plain.step(next(order))

    seconds = in_turn({"product": lambda: product(steps[0]), PEER: peer}, rounds)
    mine, theirs = (statistics.median(each) / count for each, count in zip(seconds.values(), steps, strict=True))
    rates = f"{BATCH / mine:11,.0f} {BATCH / theirs:11,.0f} {theirs / mine:8.1f}x"
    print(f"{task:48s} {rates}   {found:.6f} {expected:.6f}", flush=True)


def negatives_task(X: sp.csr_array, counts: list[int], rounds: int) -> None:
    for n in counts:
        for shared in (True, False):
            ours = trainer(X, "sl", tau=TAU, n_negatives=n, shared_negatives=shared, sampler="uniform-all")
            kind = "shared by the batch" if shared else "each positive's own"
            compare(f"SL, {n} negatives, {kind}", ours, Plain(ours, n), (20, max(1, 400 // n)), rounds)


class PlainShared(Plain):
    """The recipe for negatives that all rows share: a product with their vectors, and no copy of a vector per pair."""

    def __init__(self, ours: Trainer, n: int, loss: str):
        super().__init__(ours, n)
        self.name = loss

    def negatives(self) -> torch.Tensor:
        return torch.randint(self.ours.X.shape[1], (1, self.n))

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        U, V = self.tables
        p, q = F.normalize(U[users], dim=1), F.normalize(V[items], dim=1)
        if self.name == "in-batch":
            return F.cross_entropy(p @ q.T / TAU, torch.arange(len(p)))
        d = p @ F.normalize(V[negatives[0]], dim=1).T - (p * q).sum(-1)[:, None]
        if self.name == "psl":
            return torch.logsumexp(torch.log1p(torch.tanh(d / 2)) / TAU, dim=1).mean()
        return torch.logsumexp(d / TAU, dim=1).mean()


def shared_task(X: sp.csr_array, rounds: int) -> None:
    n = 2048
    for name, title in (("sl", "SL"), ("psl", "PSL"), ("in-batch", "SSM")):
        if name == "in-batch":
            ours = trainer(X, "sl", tau=TAU, sampler="in-batch", include_positive=True)
            kind = f"the other {BATCH - 1:,} of the batch"
        else:
            ours = trainer(X, name, tau=TAU, n_negatives=n, shared_negatives=True, sampler="uniform-all")
            kind = f"{n:,} negatives shared by the batch"
        compare(f"{title}, {kind}", ours, PlainShared(ours, n, name), (20, 5), rounds)


def softmax_task(X: sp.csr_array, rounds: int) -> None:
    for precision in ("float32", "bfloat16"):
        ours = trainer(X, "softmax", precision=precision)
        compare(f"softmax over all items, {precision} products", ours, PlainSoftmax(ours, 0), (3, 3), rounds)


class PlainCosineSoftmax(Plain):
    def negatives(self) -> torch.Tensor:
        return torch.empty(0)

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        U, V = self.tables
        return F.cross_entropy(F.normalize(U[users], dim=1) @ F.normalize(V, dim=1).T / TAU, items)


def large_product_rate() -> float:
    """Floating-point operations a second of PyTorch's product of two matrices of 4096 x 4096: the best of five."""
    A, times = torch.randn(4096, 4096), []
    for _ in range(5):
        start = time.perf_counter()
        A @ A
        times.append(time.perf_counter() - start)
    return 2 * 4096**3 / min(times)


def catalogue_task(X: sp.csr_array, rounds: int) -> None:
    rate = large_product_rate()
    for name in ("sl", "infonce", "mine-plus", "softmax", "bsl", "talos", "advinfonce", "llpauc", "bce", "ccl", "mse"):
        values = {"tau": TAU} if name in ("sl", "infonce", "mine-plus", "talos", "advinfonce") else {}
        ours = trainer(X, name, objective="catalogue", **values)
        plain, order = PlainCosineSoftmax(ours, 0), batches(ours)
        parts = itertools.cycle([*ours._chosen(1)][:-1])
        numbers, seconds, positives = iter(range(10**9)), {"product": [], PEER: []}, 0
        for turn, side in turns(seconds, rounds):
            chosen = [next(parts) for _ in range(8)] if side == "product" else [next(order) for _ in range(3)]
            start = time.perf_counter()
            for each in chosen:
                if side == PEER:
                    plain.step(each)
                else:
                    ours._step(ours._batch(1, next(numbers), ours.users[each], ours.items[each]), 1.0)
            if turn:
                seconds[side].append((time.perf_counter() - start) / sum(map(len, chosen)))
            if side == "product":
                positives = sum(map(len, chosen)) / len(chosen)
        mine, theirs = (statistics.median(seconds[side]) for side in ("product", PEER))
        products = 3 * 2 * ours.p.users_per_step * X.shape[1] * DIM / rate
        step = (
            f"step {mine * positives * 1e3:.0f} ms, {mine * positives / products:.2f}x its products at {rate / 1e9:.0f} GFLOP/s"
        )
        print(
            f"{name + ' over all items, by users':48s} {1 / mine:11,.0f} {1 / theirs:11,.0f} {theirs / mine:8.1f}x   {step}",
            flush=True,
        )


def adam_task(X: sp.csr_array, rounds: int) -> None:
    for n, shared in ((100, False), (1024, True)):
        values = {"tau": TAU, "n_negatives": n, "shared_negatives": shared, "sampler": "uniform-all"}
        # A penalty of no effect makes every step pass over the tables.
        ways = ({"optimizer": "row-adam"}, {}, {"weight_decay": 1e-30})
        fits = (trainer(X, "sl", **values, **way) for way in ways)
        sides = {name: stepping(ours, batches(ours)) for name, ours in zip(("rows", "dense", "whole"), fits, strict=True)}
        for steps in sides.values():
            steps(_WARM)
        seconds = in_turn({name: partial(steps, 20) for name, steps in sides.items()}, rounds)
        rows, dense, whole = (statistics.median(each) / 20 for each in seconds.values())
        kind = f"SL, {n} negatives, {'shared' if shared else 'own'}"
        print(
            f"{kind:30s} row-adam {rows * 1e3:6.1f} ms, adam {dense * 1e3:6.1f} ms ({dense / rows:.2f}x), "
            f"over whole tables {whole * 1e3:6.1f} ms ({whole / dense:.1f}x adam)",
            flush=True,
        )


def lightgcn_task(X: sp.csr_array, rounds: int) -> None:
    ours = trainer(X, "bpr", model="lightgcn", n_negatives=1, sampler="uniform-all")
    compare("LightGCN, BPR, 1 negative", ours, PlainLightGCN(ours, 1), (3, 2), rounds)


def peak(dataset: str, answer) -> None:
    ours = trainer(load(dataset, Environment.from_env()).split.train, "softmax")
    before, order = peak_memory(), batches(ours)
    for number in range(3):
        chosen = next(order)
        ours._step(ours._batch(1, number, ours.users[chosen], ours.items[chosen]), 1.0)
    answer.put((before, peak_memory()))


def memory_task(dataset: str) -> None:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    child = context.Process(target=peak, args=(dataset, answer))
    child.start()
    before, after = answer.get()
    child.join()
    print(f"softmax over all items, peak memory: {after / 1e9:.2f} GB, of which {before / 1e9:.2f} GB before the first step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tasks", nargs="*", default=["negatives", "shared", "catalogue", "adam", "softmax", "lightgcn", "memory"]
    )
    parser.add_argument("--dataset", default="gowalla")
    parser.add_argument("--n", default="100,1024", help="numbers of negatives")
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    X = load(given.dataset, Environment.from_env()).split.train
    print(f"{given.dataset}: {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} interactions; batch {BATCH}, dimension {DIM}")
    torch.sparse.check_sparse_tensor_invariants.disable()  # said, or the peer warns of it
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; revision {describe_environment()['revision']}")
    print(f"{'positives a second':48s} {'product':>11s} {PEER:>11s} {'ratio':>9s}   first loss of each")
    if "negatives" in given.tasks:
        negatives_task(X, [int(n) for n in given.n.split(",")], given.rounds)
    if "shared" in given.tasks:
        shared_task(X, given.rounds)
    if "catalogue" in given.tasks:
        catalogue_task(X, given.rounds)
    if "adam" in given.tasks:
        adam_task(X, given.rounds)
    if "softmax" in given.tasks:
        softmax_task(X, given.rounds)
    if "lightgcn" in given.tasks:
        lightgcn_task(X, given.rounds)
    if "memory" in given.tasks:
        memory_task(given.dataset)


if __name__ == "__main__":
    main()
