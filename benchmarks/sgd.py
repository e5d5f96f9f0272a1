"""Training by gradient steps against the published recipe in plain PyTorch, side by side in one process.

    python benchmarks/sgd.py                      all tasks on Gowalla: ten minutes
    python benchmarks/sgd.py negatives --n 100    one task
    python benchmarks/sgd.py memory               peak memory of softmax over the whole catalogue, in a process of its own

The recipe is the one of the authors' programs: embedding tables, negatives drawn for each positive, one gather of a
(B, n, d) tensor, dense Adam over both tables. Both sides have the same batch, dimension, loss (SL, cosine, tau 0.1) and vectors
to start from, and the first batch's loss is printed for both: the same negatives give the same number. Steps of the two
alternate in blocks, the order turned each round; the median of the rounds counts, and a block of warming up does not. Drawing
the negatives is part of a step on either side.

softmax: over all items, against cross_entropy of the (B, n_items) matrix. lightgcn: a whole step of BPR with one negative,
three layers, against torch.sparse.mm on the coalesced graph and autograd.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered as losses
from rankbench.tracking.environment import describe_environment, peak_memory
from rankbench.training.negatives import Negatives
from rankbench.training.trainer import Trainer

DIM, BATCH, TAU, RATE = 64, 1024, 0.1, 0.01
PEER = "plain PyTorch"


def trainer(X: sp.csr_array, method: str, **params) -> Trainer:
    given = {"embedding_dim": DIM, "batch_size": BATCH, "learning_rate": RATE} | params
    return Trainer(X, configure(method, given).params, losses().get(method), 0, np.float32, "cpu")


def batches(ours: Trainer) -> Iterator[np.ndarray]:
    """Positions of the interactions of a batch, without end."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(ours.users))
        yield from (order[start : start + BATCH] for start in range(0, len(order) - BATCH, BATCH))


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
        X, n_layers = ours.X.tocoo(), 3
        self.n_layers, (n_users, n_items) = n_layers, X.shape
        rows, columns = np.concatenate([X.row, X.col + n_users]), np.concatenate([X.col + n_users, X.row])
        degree = np.maximum(np.bincount(rows, minlength=n_users + n_items), 1)
        values = (1 / np.sqrt(degree[rows] * degree[columns])).astype(np.float32)
        at = torch.from_numpy(np.stack([rows, columns]).astype(np.int64))
        self.graph = torch.sparse_coo_tensor(at, torch.from_numpy(values), (n_users + n_items,) * 2).coalesce()

    def loss(self, users: torch.Tensor, items: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        layers = [torch.cat(self.tables)]
        for _ in range(self.n_layers):
            layers.append(torch.sparse.mm(self.graph, layers[-1]))
        U, V = torch.stack(layers).mean(0).split([len(table) for table in self.tables])
        pos = (U[users] * V[items]).sum(-1)
        neg = torch.einsum("bd,bnd->bn", U[users], V[negatives])
        return F.softplus(neg - pos[:, None]).mean()


def same_loss(ours: Trainer, plain: Plain) -> tuple[float, float]:
    """The loss of one batch with the same negatives, before any step."""
    chosen = next(batches(ours))
    batch = ours._batch(1, 0, ours.users[chosen], ours.items[chosen])
    users, items = (torch.from_numpy(side) for side in (batch.users, batch.items))
    drawn = batch.negatives
    negatives = torch.from_numpy(drawn.items).expand(BATCH, -1) if isinstance(drawn, Negatives) else torch.empty(0)
    expected = float(plain.loss(users, items, negatives).detach())
    kept = ours.arrays()
    found = ours._step(batch, 0.0)
    ours.restore(kept)
    return found, expected


def compare(task: str, ours: Trainer, plain: Plain, steps: tuple[int, int], rounds: int) -> None:
    """Print positives a second of both. `steps`: of ours and of the peer in a round."""
    found, expected = same_loss(ours, plain)
    order, numbers = batches(ours), iter(range(10**9))

    def product() -> None:
        chosen = next(order)
        ours._step(ours._batch(1, next(numbers), ours.users[chosen], ours.items[chosen]), 1.0)

    sides: dict[str, tuple[Callable, int]] = {"product": (product, steps[0]), PEER: (lambda: plain.step(next(order)), steps[1])}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in list(sides) if turn % 2 else list(sides)[::-1]:
            step, count = sides[name]
            start = time.perf_counter()
            for _ in range(count):
                step()
            if turn:
                seconds[name].append((time.perf_counter() - start) / count)
    mine, theirs = (statistics.median(seconds[name]) for name in ("product", PEER))
    rates = f"{BATCH / mine:11,.0f} {BATCH / theirs:11,.0f} {theirs / mine:8.1f}x"
    print(f"{task:48s} {rates}   {found:.6f} {expected:.6f}", flush=True)


def negatives_task(X: sp.csr_array, counts: list[int], rounds: int) -> None:
    for n in counts:
        for shared in (True, False):
            ours = trainer(X, "sl", tau=TAU, n_negatives=n, shared_negatives=shared, sampler="uniform-all")
            kind = "shared by the batch" if shared else "each positive's own"
            compare(f"SL, {n} negatives, {kind}", ours, Plain(ours, n), (20, max(1, 400 // n)), rounds)


def softmax_task(X: sp.csr_array, rounds: int) -> None:
    for precision in ("float32", "bfloat16"):
        ours = trainer(X, "softmax", precision=precision)
        compare(f"softmax over all items, {precision} products", ours, PlainSoftmax(ours, 0), (3, 3), rounds)


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
    parser.add_argument("tasks", nargs="*", default=["negatives", "softmax", "lightgcn", "memory"])
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
    if "softmax" in given.tasks:
        softmax_task(X, given.rounds)
    if "lightgcn" in given.tasks:
        lightgcn_task(X, given.rounds)
    if "memory" in given.tasks:
        memory_task(given.dataset)


if __name__ == "__main__":
    main()
