"""A step of six methods on a device, beside its bytes or operations at the device's own rates, and beside plain PyTorch.

    python benchmarks/device_steps.py                            on a GPU, with the numbers of Gowalla: some minutes
    python benchmarks/device_steps.py --device cpu --scale 0.02  what a GPU would compute, on the processor: a rehearsal

The rates are measured in the same process: bytes read and written by a copy, and float32 operations of a square product. The
column "least" is the longer of the two times that a step cannot do without, that of its bytes and that of its operations. Bytes
are those of whole passes over tables (eight in a step of Adam, the gradient included), of gathered vectors and of their
gradients; what a cache holds is counted as if it was read from memory, so that a ratio below 1 is possible. Blocks of steps of
both sides alternate, the host waits for the device at both ends of a block, and medians count. Drawing a batch, its
negatives and Adam are part of a step.

The other side is what a reader would write: Adam as it comes, batches copied in each step, a (B, n, d) array of gathered
negatives, the whole matrix of scores for the catalogue, COO products for LightGCN, `torch.linalg.inv` for EASE, and padded
lists for iALS. A step of EASE is the inverse, with its way to the device and back; one of iALS is an iteration, which this
package computes on the processor alone.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import scipy.sparse as sp
import torch
from als import ALPHA0, LAM, Ours, ours, random_factors
from als_floors import operations
from encoders import Graph, mean_of_layers, random_graph
from torch import Tensor
from torch.nn import functional as F

from rankbench.core import devices
from rankbench.experiment.job import configure
from rankbench.losses.spec import registered as losses
from rankbench.training.device import spd_inverse_on_
from rankbench.training.trainer import Trainer

DIM, BATCH, NEGATIVES, USERS_PER_STEP, TAU, K = 64, 2048, 1000, 512, 0.1, 20
AT_ONCE = 1 << 20  # padded interactions whose vectors plain least squares gathers at once
Step = Callable[[], object]


@dataclass
class Task:
    """A step of this package and one of plain PyTorch, with the bytes and the operations that it cannot do without."""

    ours: Step
    plain: Step
    bytes: float = 0.0
    operations: float = 0.0
    steps: int = 1  # per block


class Fit:
    """The steps of a fit of this package."""

    def __init__(self, X: sp.csr_array, device: torch.device, method: str, **params):
        given = {"embedding_dim": DIM, "learning_rate": 0.01} | params
        self.trainer = Trainer(X, configure(method, given).params, losses().get(method), 0, np.float32, str(device))
        self.batches = self._batches()

    def _batches(self) -> Iterator[tuple]:
        trainer = self.trainer
        for epoch in itertools.count(1):
            parts = [*trainer._chosen(epoch)]
            for count, (chosen, there) in enumerate(zip(parts, trainer._there(parts), strict=True)):
                yield epoch, count, trainer.users[chosen], trainer.items[chosen], there

    def __call__(self) -> None:
        self.trainer._step(self.trainer._batch(*next(self.batches)), 1.0)


class Plain:
    """The steps of plain PyTorch, with the batches of a fit. `loss(self, users, items)` is that of a batch."""

    def __init__(self, fit: Fit, loss: Callable[[Plain, Tensor, Tensor], Tensor]):
        trainer = fit.trainer
        self.X, self.device, self.loss, self.batches = trainer.X, trainer.device, loss, fit._batches()
        self.tables = [each.detach().clone().requires_grad_() for each in (trainer.encoder.users, trainer.encoder.items)]
        self.beta = torch.zeros(self.X.shape[0], device=self.device, requires_grad=True)
        self.adam = torch.optim.Adam([*self.tables, self.beta], lr=0.01)
        self.matrix = Graph(self.X).matrix.to(self.device) if loss is lightgcn else None
        self.indptr, self.items = (torch.from_numpy(each).long().to(self.device) for each in (self.X.indptr, self.X.indices))

    def __call__(self) -> None:
        _, _, users, items, _ = next(self.batches)
        self.adam.zero_grad()
        self.loss(self, *(torch.from_numpy(side).to(self.device) for side in (users, items))).backward()
        self.adam.step()

    def sampled(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The directions of the users, and the cosines of the items and of the negatives."""
        U, V = self.tables
        drawn = torch.randint(len(V), (len(users), NEGATIVES), device=self.device)
        p, q, others = (F.normalize(each, dim=-1) for each in (U[users], V[items], V[drawn]))
        return p, (p * q).sum(-1), torch.einsum("bd,bnd->bn", p, others)


def sl(plain: Plain, users: Tensor, items: Tensor) -> Tensor:
    _, pos, neg = plain.sampled(users, items)
    return torch.logsumexp((neg - pos[:, None]) / TAU, dim=1).mean()


def sl_of_catalogue(plain: Plain, users: Tensor, items: Tensor) -> Tensor:
    U, V = (F.normalize(table, dim=-1) for table in plain.tables)
    ids, of = users.unique(return_inverse=True)
    scores = U[ids] @ V.T / TAU
    return (torch.logsumexp(scores, dim=1)[of] - scores[of, items]).mean()


def talos(plain: Plain, users: Tensor, items: Tensor) -> Tensor:
    """With the quantile regression of its thresholds (`losses/quantile.py`)."""
    p, pos, neg = plain.sampled(users, items)
    beta, V = plain.beta[users], plain.tables[1].detach()
    n_items, degree = len(V), plain.indptr[users + 1] - plain.indptr[users]
    row = torch.arange(len(users), device=plain.device).repeat_interleave(degree)
    first = plain.indptr[users] - (degree.cumsum(0) - degree)
    own = (p.detach()[row] * F.normalize(V[plain.items[first[row] + torch.arange(len(row), device=plain.device)]])).sum(-1)

    def rho(x: Tensor) -> Tensor:
        return torch.relu(x) - K / n_items * x

    of_own = torch.zeros_like(beta).index_add(0, row, rho(own - beta[row]))
    of_drawn = (n_items - degree) / NEGATIVES * rho(neg.detach() - beta[:, None]).sum(1)
    fixed = beta.detach()
    loss = torch.logsumexp(F.logsigmoid(neg - fixed[:, None]) / TAU, dim=1) - F.logsigmoid(pos - fixed) / TAU
    return loss.mean() + ((of_own + of_drawn) / n_items).mean()


def lightgcn(plain: Plain, users: Tensor, items: Tensor) -> Tensor:
    sides = [len(table) for table in plain.tables]
    U, V = mean_of_layers(torch.cat(plain.tables), plain.matrix).split(sides)
    drawn = torch.randint(len(V), (len(users),), device=plain.device)
    return F.softplus((U[users] * (V[drawn] - V[items])).sum(-1)).mean()


class PlainALS:
    """Exact least squares of the rows of each side in turn, whose lists are padded to the longest one of a block."""

    def __init__(self, X: sp.csr_array, start: tuple[np.ndarray, np.ndarray], device: torch.device):
        self.tables, self.sides = [torch.from_numpy(table).to(device) for table in start], []
        for side in (X, sp.csr_array(X.T)):
            degree = np.diff(side.indptr)
            indptr, indices = (torch.from_numpy(each.astype(np.int64)).to(device) for each in (side.indptr, side.indices))
            blocks = []
            for power in range(int(degree.max()).bit_length() + 1):  # rows with 2^(power - 1) to 2^power - 1 interactions
                rows = np.flatnonzero(np.frexp(degree)[1] == power)
                for part in np.array_split(rows, -(-len(rows) * 2**power // AT_ONCE)) if len(rows) else ():
                    blocks.append((torch.from_numpy(part).to(device), int(degree[part].max())))
            self.sides.append((indptr, indices, blocks))

    def __call__(self) -> None:
        for number, (indptr, indices, blocks) in enumerate(self.sides):
            own, others = self.tables[number], self.tables[1 - number]
            gram, unit = ALPHA0 * others.T @ others, torch.eye(DIM, device=others.device)
            for rows, longest in blocks:
                degree = indptr[rows + 1] - indptr[rows]
                place = torch.arange(max(longest, 1), device=rows.device)
                there = place < degree[:, None]
                vectors = others[indices[(indptr[rows, None] + place).clamp(max=len(indices) - 1)]] * there[:, :, None]
                ridge = LAM * (degree + ALPHA0 * len(others))[:, None, None]
                factors = torch.linalg.cholesky(vectors.mT @ vectors + gram + ridge * unit)
                own[rows] = torch.cholesky_solve(vectors.sum(1)[:, :, None], factors)[:, :, 0]


def tasks(X: sp.csr_array, device: torch.device, scale: float, steps: int) -> Iterator[tuple[str, Task]]:
    n_users, n_items = X.shape
    row = 4 * DIM
    table, batch = (n_users + n_items) * row, max(64, int(BATCH * scale))
    sampled = 4 * batch * (NEGATIVES + 2) * row + 8 * table
    degree = np.diff(X.indptr).astype(float)
    lists = batch * (degree**2).sum() / X.nnz * row
    given = {"batch_size": batch, "n_negatives": NEGATIVES, "sampler": "uniform-other"}

    def task(loss, method: str, bytes: float, operations: float = 0.0, **params) -> Task:
        fit = Fit(X, device, method, **params)
        return Task(fit, Plain(fit, loss), bytes, operations, steps)

    yield "SL, sampled", task(sl, "sl", sampled, tau=TAU, **given)
    users = max(16, int(USERS_PER_STEP * scale))
    whole = {"objective": "catalogue", "sampler": "uniform-all", "users_per_step": users}
    yield "SL, catalogue", task(sl_of_catalogue, "sl", 8 * table, 6.0 * users * n_items * DIM, tau=TAU, **whole)
    products = 6 * (2 * X.nnz * (row + 8) + 2 * table) + 8 * table
    yield "LightGCN", task(lightgcn, "bpr", products, model="lightgcn", **given | {"n_negatives": 1})
    yield "Talos", task(talos, "talos", sampled + lists, tau=TAU, K=K, **given)

    A = (X.T @ X).toarray(order="C")
    A.flat[:: n_items + 1] += 500
    # The inverse overwrites the matrix; its inverse is the matrix again.
    yield (
        "EASE",
        Task(
            lambda: spd_inverse_on_(A, str(device)),
            lambda: torch.linalg.inv(torch.from_numpy(A).to(device)).cpu(),
            operations=float(n_items) ** 3,
        ),
    )
    start = random_factors(X, DIM)
    name, params = ours(DIM)["iALS exact"]
    on_host = Ours(X, name, params, start, torch.get_num_threads())
    yield "iALS (ours: processor)", Task(on_host.step, PlainALS(X, start, device), operations=operations(X, DIM))


def seconds(step: Step, steps: int, device: torch.device) -> float:
    """Seconds of a step, from a block of them."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - began) / steps


def rates(device: torch.device) -> tuple[float, float]:
    """Bytes a second of a copy, read and written, and float32 operations a second of a square product."""
    n, order = (1 << 28, 8192) if device.type == "cuda" else (1 << 25, 1024)
    x, A = torch.ones(n, device=device), torch.ones(order, order, device=device)
    y, B = torch.empty_like(x), torch.empty_like(A)
    copy, product = (
        median(seconds(step, 3, device) for _ in range(5)) for step in (lambda: y.copy_(x), lambda: torch.mm(A, A, out=B))
    )
    return 2 * x.nbytes / copy, 2 * order**3 / product


def in_turn(task: Task, rounds: int, device: torch.device) -> tuple[float, float | None]:
    """The median seconds of a step of ours and of plain PyTorch, or None if that one's memory does not suffice."""
    taken: tuple[list[float], list[float]] = ([], [])
    sides = [0, 1]
    for turn in range(rounds + 1):  # the first round is not counted
        for side in sides if turn % 2 else sides[::-1]:
            try:
                taken[side].append(seconds((task.ours, task.plain)[side], task.steps, device))
            except torch.cuda.OutOfMemoryError:
                if side == 0:
                    raise
                sides = [0]
    return median(taken[0][1:]), median(taken[1][1:]) if len(sides) == 2 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the users, items, interactions and rows of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps of a block; 50 on a GPU, 2 on the processor")
    given = parser.parse_args()
    torch.sparse.check_sparse_tensor_invariants.disable()  # said once, so that PyTorch does not ask
    devices._COMPILED = False  # on the processor, too, what a GPU computes
    device = torch.device(given.device)
    gpu = device.type == "cuda"
    X = random_graph(given.scale)
    bandwidth, rate = rates(device)
    name = torch.cuda.get_device_name(device) if gpu else f"processor, {torch.get_num_threads()} threads"
    print(f"{name}: {bandwidth / 1e9:,.0f} GB/s copied, {rate / 1e12:,.2f} TFLOP/s in float32, PyTorch {torch.__version__}")
    print(f"{X.shape[0]:,} users, {X.shape[1]:,} items, {X.nnz:,} interactions, {DIM} dimensions")
    titles = ("step ms", "least ms", "ratio", "plain ms", "plain/ours")
    print(f"{'':24s}" + "".join(f"{title:>12s}" for title in titles) + "  least by")
    for label, task in tasks(X, device, given.scale, given.steps or (50 if gpu else 2)):
        step, plain = in_turn(task, given.rounds, device)
        by_bytes, by_operations = task.bytes / bandwidth, task.operations / rate
        least = max(by_bytes, by_operations)
        peer = f"{'no memory':>12s}{'':12s}" if plain is None else f"{1e3 * plain:12.3f}{plain / step:12.2f}"
        by = "bytes" if by_bytes > by_operations else "operations"
        print(f"{label:24s}{1e3 * step:12.3f}{1e3 * least:12.3f}{step / least:12.2f}{peer}  {by}", flush=True)


if __name__ == "__main__":
    main()
