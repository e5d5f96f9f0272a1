"""A training step of every graph encoder beside the plain PyTorch recipe and beside the machine's own rates, in one process.

    python benchmarks/encoders.py                      all encoders, on a random graph of about Gowalla's size: some minutes
    python benchmarks/encoders.py gat dgcf --scale 0.1 two of them, on a tenth of the users, items and interactions
    python benchmarks/encoders.py --data gowalla       on the training interactions of a dataset

A step is that of a fit: BPR with one negative of `--batch` positives, the encoder's own loss, all gradients and Adam. The
recipe gathers a vector for each edge and adds it to its head by index_add_; LightGCN, XSimGCL, NGCF and SGL multiply by a
sparse matrix instead, and GAT is GATConv of torch_geometric, which has to be installed for it. DGCF has one layer, because the
recipe keeps 1 GB per iteration. Both sides start from the same weights, and the largest difference of their vectors is printed.
They alternate, and medians count; "least" is the quickest step, which other work on the machine disturbs less. In a fit,
PyTorch's own operations have one thread, as here on the side of the product; the recipe has `--threads`.

The bound is the time in which the machine could do what a step must do, at rates measured in the same run with `--threads`
threads: rows gathered in any order (--dim numbers each, from a table of as many rows as there are nodes), tables read or
written in their order, and products of a table with a square matrix, one after another. `NEEDS` counts them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F
from turns import in_turn

from rankbench.core.environment import Environment
from rankbench.core.threads import pinned
from rankbench.data.prepare import load
from rankbench.kernels.neighbours import empty_table, ends_with_zeros, sum_rows
from rankbench.kernels.parallel import in_blocks
from rankbench.models import propagation
from rankbench.models.exchange import Exchange
from rankbench.models.spec import EmbeddingModel, registered
from rankbench.training.batches import Rows
from rankbench.training.learner import learner
from rankbench.training.memory import keep_freed
from rankbench.training.params import TrainingParams

USERS, ITEMS, INTERACTIONS = 29_858, 40_981, 810_128
Recipe = Callable[[EmbeddingModel, "Graph"], tuple[Tensor, Tensor]]


class Graph:
    """The interactions as a list of edges, in both directions."""

    def __init__(self, X: sp.csr_array):
        n_users, n_items = X.shape
        user, item = (torch.from_numpy(side.astype(np.int64)) for side in X.tocoo().coords)
        self.n_users, self.n_nodes = n_users, n_users + n_items
        self.head, self.tail = torch.cat([user, item + n_users]), torch.cat([item + n_users, user])
        degree = torch.bincount(self.head, minlength=self.n_nodes).clamp(min=1).float()
        self.matrix = self._matrix(self.head, self.tail, (degree[self.head] * degree[self.tail]).rsqrt())
        nodes = torch.arange(self.n_nodes)  # with the node itself among its neighbours, and their mean
        head, tail = torch.cat([self.head, nodes]), torch.cat([self.tail, nodes])
        self.mean = self._matrix(head, tail, 1 / (torch.bincount(head, minlength=self.n_nodes).float()[head]))

    def _matrix(self, head: Tensor, tail: Tensor, values: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(torch.stack([head, tail]), values, (self.n_nodes,) * 2).coalesce()

    def split(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        return vectors[: self.n_users], vectors[self.n_users :]


def random_graph(scale: float) -> sp.csr_array:
    """0/1 CSR with the numbers of Gowalla times `scale`, and power laws of activity and popularity."""
    rng = np.random.default_rng(0)
    sides = []
    for n, exponent in ((int(USERS * scale), 0.5), (int(ITEMS * scale), 0.7)):
        weight = (1.0 + np.arange(n)) ** -exponent
        sides.append(rng.permutation(n)[rng.choice(n, int(INTERACTIONS * scale), p=weight / weight.sum())])
    X = sp.csr_array((np.ones(len(sides[0]), np.float32), tuple(sides)), shape=(int(USERS * scale), int(ITEMS * scale)))
    X.sum_duplicates()
    X.data[:] = 1
    return X


def tables(model: EmbeddingModel) -> Tensor:
    return torch.cat([model.users, model.items])


def lightgcn(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    return graph.split(mean_of_layers(tables(model), graph.matrix))


def mean_of_layers(x: Tensor, matrix: Tensor) -> Tensor:
    layers = [x]
    for _ in range(3):
        layers.append(torch.sparse.mm(matrix, layers[-1]))
    return torch.stack(layers).mean(dim=0)


def sgl(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    if not hasattr(graph, "parts"):  # the same thinned graphs
        graph.parts = [Graph(interactions_of(part, model.X.shape)) for part in model.parts]
    model.views = [graph.split(mean_of_layers(tables(model), part.matrix)) for part in graph.parts]
    return lightgcn(model, graph)


def interactions_of(part: propagation.Graph, shape: tuple[int, int]) -> sp.csr_array:
    indptr = part.indptr[: shape[0] + 1]
    items = part.indices[: indptr[-1]] - shape[0]
    return sp.csr_array((np.ones(len(items), np.float32), items, indptr), shape=shape)


def contrast_of_sgl(model: EmbeddingModel, users: Tensor, items: Tensor) -> Tensor:
    """The own loss of SGL with an array of all products."""
    total = 0.0
    for side, ids in enumerate((users, items)):
        z, y = (F.normalize(view[side], dim=1) for view in model.views)
        total = total + F.cross_entropy(z[ids] @ y.T / model.p.ssl_tau, ids)
    return model.p.ssl_weight * total


def ngcf(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    E = tables(model)
    layers = [E]
    for number in range(model.p.n_layers):
        S = torch.sparse.mm(graph.mean, E)
        W, V = model.W[2 * number : 2 * number + 2]
        b, c = model.b[2 * number : 2 * number + 2]
        E = F.leaky_relu(S @ W + b, 0.2) + F.leaky_relu((S * E) @ V + c, 0.2)
        layers.append(F.normalize(E, dim=1))
    return graph.split(torch.cat(layers, dim=1))


def xsimgcl(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    x, layers = tables(model), []
    for _ in range(model.p.n_layers):
        x = torch.sparse.mm(graph.matrix, x)
        x = x + x.sign() * F.normalize(torch.rand_like(x), dim=1) * model.p.noise
        layers.append(x)
    final = graph.split(torch.stack(layers).mean(dim=0))
    model.views = tuple(zip(final, graph.split(layers[model.p.contrast_layer - 1]), strict=True))
    return final


def gat(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    from torch_geometric.nn import GATConv

    x, nodes = tables(model), torch.arange(graph.n_nodes)
    edges = torch.stack([torch.cat([graph.tail, nodes]), torch.cat([graph.head, nodes])])
    for number, (W, a_dst, a_src) in enumerate(zip(model.weights, model.at_head, model.at_tail, strict=True), start=1):
        layer = GATConv(*W.shape, bias=False, add_self_loops=False)
        del layer.lin.weight, layer.att_dst, layer.att_src  # the encoder's own weights take their place
        layer.lin.weight, layer.att_dst, layer.att_src = W.T, a_dst.T[None], a_src.T[None]
        x = layer(x, edges)
        x = F.elu(x) if number < len(model.weights) else x
    return graph.split(x)


def dgcf(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    p, x = model.p, tables(model)
    K, layers = p.n_intents, [x]
    S = torch.ones(len(graph.head), K)
    for layer in range(p.n_layers):
        chunks = x.unflatten(1, (K, -1))
        tail = F.normalize(chunks, dim=2).tanh()
        for iteration in range(p.n_routings):
            P = S.softmax(dim=1)
            scale = torch.zeros(graph.n_nodes, K).index_add_(0, graph.head, P).clamp(min=1e-8).rsqrt()
            weights = P * scale[graph.head] * scale[graph.tail]
            y = torch.zeros_like(chunks).index_add_(0, graph.head, weights[:, :, None] * chunks[graph.tail])
            if (layer, iteration) != (p.n_layers - 1, p.n_routings - 1):
                S = S + (F.normalize(y, dim=2)[graph.head] * tail[graph.tail]).sum(dim=2)
        x = y.flatten(1)
        layers.append(x)
    model.final = graph.split(torch.stack(layers).mean(dim=0))
    return model.final


def pinsage(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    e, x = model.edges.on(torch.device("cpu")), tables(model)  # the same neighbours
    weights = zip(model.messages, model.message_biases, model.weights, model.biases, strict=True)
    for number, (Q, q, W, w) in enumerate(weights, start=1):
        message = (x @ Q + q).relu()
        n = torch.zeros_like(x).index_add_(0, e.head, model.shares * message[e.tail])
        x = torch.cat([x, n], dim=1) @ W + w
        x = F.normalize(x.relu(), dim=1) if number < model.p.convolutions else x
    return graph.split(x)


RECIPES: dict[str, Recipe] = {
    "lightgcn": lightgcn,
    "xsimgcl": xsimgcl,
    "gat": gat,
    "dgcf": dgcf,
    "pinsage": pinsage,
    "ngcf": ngcf,
    "sgl": sgl,
}
OWN_LOSSES = {"sgl": contrast_of_sgl}  # where the recipe has another


class Rates(NamedTuple):
    """Seconds for the gather of a row, for a table that is read or written, and for its product with a square matrix."""

    row: float
    table: float
    product: float

    @classmethod
    def measured(cls, n: int, dim: int, threads: int) -> Rates:
        rng = np.random.default_rng(0)
        table, other = (rng.standard_normal((n, dim), np.float32) for _ in range(2))
        square, per_row = rng.standard_normal((dim, dim), np.float32), 32
        ends = ends_with_zeros(rng.integers(n, size=n * per_row))

        def gather(begin: int, end: int) -> None:
            gathered(begin, end, per_row, ends, padded, other)

        padded = empty_table(n, dim, table.dtype)
        padded[:, :dim] = table
        # Larger than the caches, as the tables of a step are together.
        source, target = (np.ones((8, n, dim), np.float32) for _ in range(2))
        ways = (
            (n * per_row, gather, n),
            (2 * 8, lambda begin, end: np.copyto(target[:, begin:end], source[:, begin:end]), n),
            (1, lambda begin, end: np.matmul(table[begin:end], square, out=other[begin:end]), n),
        )
        return cls(*(min(timed(in_blocks, work, n) for _ in range(7)) / amount for amount, work, n in ways))


def timed(function: Callable, *arguments: object) -> float:
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


@numba.njit(nogil=True, cache=True)
def gathered(begin, end, per_row, ends, table, out):
    total = np.empty(table.shape[1], table.dtype)
    for row in range(begin, end):
        sum_rows(ends, row * per_row, (row + 1) * per_row, table, total)
        for c in range(out.shape[1]):
            out[row, c] = total[c]


# For L layers: passes over all edges, passes over the edges of the batch's nodes alone, tables of all nodes that are read or
# written once, and products of a table with a square matrix. The last layer of a step and the first of its gradient concern the
# batch alone. Adam reads and writes the learned vectors and both moments; where it ends the last pass, the gradient is never in
# memory, and otherwise it is one table more. `contrast` is the products of the positives' nodes with those that an own loss
# compares them with, in products of a table: it needs them once, and twice more for the gradient.
#   lightgcn, xsimgcl   a pass over all edges reads a table of its own and writes one
#   xsimgcl             its own loss compares the nodes of the batch with one another
#   sgl                 three graphs, and its own loss compares the nodes of the batch with all of their kind
#   ngcf                a layer reads its input and writes S and its output; its gradient reads S, input and ∂, and writes two
#   gat                 a layer reads x and writes H, y and ŷ; its gradient reads g, x, H, y and ŷ and writes ∂H and ∂x
#   pinsage             a layer reads x and writes M, n and z; its gradient reads these and ∂z, and writes ∂n, ∂M and ∂x
#   dgcf                an iteration sums along the edges and, but for the last, multiplies along them; the gradient of sums
#                       has one pass, that of products two; shares and logits of the edges are written and read twice
NEEDS: dict[str, Callable[[int, float], tuple[float, float, float, float]]] = {
    "lightgcn": lambda L, contrast: (2 * (L - 1), 2, 4 * (L - 1) + 6, 0),
    "xsimgcl": lambda L, contrast: (2 * (L - 1), 2, 4 * (L - 1) + 7, 3 * contrast),
    "sgl": lambda L, contrast: (4 * L + 2 * (L - 1), 2, 4 * (3 * L - 1) + 7, 3 * contrast),
    "ngcf": lambda L, contrast: (2 * (L - 1), 2, 8 * (L - 1) + 7, 6 * (L - 1)),
    "gat": lambda L, contrast: (2 * (L - 1), 2, 11 * (L - 1) + 4 + 7, 3 * L),
    "pinsage": lambda L, contrast: (2 * (L - 1), 2, 12 * (L - 1) + 4 + 7, 9 * (L - 1) + 3),
    "dgcf": lambda L, contrast: (10 * L - 3, 0, 12 * L + 7, 0),
}
LAYERS = {"gat": 2, "pinsage": 2, "dgcf": 1}  # of others, three


def bound(name: str, model: EmbeddingModel, batch: np.ndarray, positives: tuple[int, int], rates: Rates) -> float:
    """Seconds that a step needs at the machine's rates.

    `batch` are the unique nodes of the batch, and `positives` the numbers of unique users and items of its positives.
    """
    edges = model.edges.heads if hasattr(model, "edges") else model.graph
    degree, n, dim = np.diff(edges.indptr), len(edges.indptr) - 1, model.users.shape[1]
    layers = LAYERS.get(name, 3)
    others = positives if name == "xsimgcl" else (len(model.users), len(model.items))
    contrasted = sum(own * other for own, other in zip(positives, others, strict=True))
    whole, some, tables, products = NEEDS[name](layers, contrasted / (n * dim))
    per_edge = 8 * layers * model.p.n_intents * degree.sum() / (n * dim) if name == "dgcf" else 0
    rows = whole * degree.sum() + some * degree[batch].sum()
    return rows * rates.row + (tables + per_edge) * rates.table + products * rates.product


def compare(name: str, X: sp.csr_array, graph: Graph, values: dict[str, int], given: argparse.Namespace, rates: Rates) -> None:
    encoder, start = registered().get(name), torch.Generator().manual_seed(0)
    vectors = [torch.randn(n, given.dim, generator=start) * 0.1 for n in X.shape]

    def built() -> EmbeddingModel:
        made = encoder.build(X, encoder.params(**values), *(each.clone() for each in vectors), torch.Generator().manual_seed(1))
        made.train().begin_epoch(1)
        return made

    began = time.perf_counter()
    model = built()
    building = time.perf_counter() - began
    other = built()
    with torch.no_grad():
        both = model(), RECIPES[name](other, graph)
        difference = max(float((a - b).abs().max()) for a, b in zip(*both, strict=True))
    fit = learner(model, TrainingParams(model=name), False, Exchange())
    adam = torch.optim.Adam(other.parameters(), lr=fit.learning_rate if hasattr(fit, "learning_rate") else 0.01)
    chosen = torch.randint(X.nnz, (given.batch,), generator=start)
    users, items = graph.head[: X.nnz][chosen], graph.tail[: X.nnz][chosen] - X.shape[0]
    negatives = torch.randint(X.shape[1], (given.batch,), generator=start)
    some, touched = np.unique(users.numpy()), np.unique(torch.cat([items, negatives]).numpy())

    def loss_of(U: Rows, V: Rows) -> Tensor:
        u, i, j = (rows.vectors[rows.positions(ids.numpy())] for rows, ids in ((U, users), (V, items), (V, negatives)))
        return F.softplus((u * (j - i)).sum(dim=1)).mean()

    def product() -> None:
        torch.set_num_threads(1)
        model.zero_grad()
        U, V, _ = fit.rows(some, touched)
        own = model.own_loss(users, items)
        loss = loss_of(U, V)
        (loss if own is None else loss + own).backward()
        fit.step(1.0)

    def recipe() -> None:
        torch.set_num_threads(given.threads)
        other.zero_grad()
        U, V = RECIPES[name](other, graph)
        own_loss = OWN_LOSSES.get(name)
        own = own_loss(other, users, items) if own_loss else other.own_loss(users, items)
        loss = loss_of(Rows(U, None), Rows(V, None))
        (loss if own is None else loss + own).backward()
        adam.step()

    sides = {"product": product, "recipe": recipe} if given.recipe else {"product": product}
    seconds = in_turn(sides, given.rounds)
    ours, recipes = (statistics.median(seconds.get(side, [float("nan")])) for side in ("product", "recipe"))
    positives = len(some), len(items.unique())
    least = bound(name, model, np.concatenate([some, X.shape[0] + touched]), positives, rates)
    label = " ".join([name, *(f"{key}={value}" for key, value in values.items())])
    apart = "noise" if name == "xsimgcl" else f"{difference:.1e}"
    quickest = min(seconds["product"])
    print(
        f"{label:24s} {ours:9.3f} {quickest:8.3f} {least:8.3f} {ours / least:6.1f} {quickest / least:6.1f}"
        f" {recipes:9.3f} {recipes / ours:6.1f}x {building:9.2f}   {apart}",
        flush=True,
    )


TASKS: tuple[tuple[str, dict[str, int]], ...] = (
    ("lightgcn", {}),
    ("xsimgcl", {}),
    ("gat", {}),
    ("dgcf", {"n_layers": 1}),
    ("pinsage", {}),
    ("ngcf", {"message_dropout": 0}),
    ("sgl", {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="*", default=[*RECIPES])
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graph relative to Gowalla")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2, help="threads of either side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", help="a dataset, by its card, instead of the random graph")
    parser.add_argument("--recipe", action=argparse.BooleanOptionalAction, default=True, help="whether the recipe runs, too")
    given = parser.parse_args()
    X = load(given.data, Environment.from_env()).split.train if given.data else random_graph(given.scale)
    torch.sparse.check_sparse_tensor_invariants.disable()  # said, or the recipe warns of it
    keep_freed()
    graph = Graph(X)
    print(f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} interactions; dimension {given.dim}, batch {given.batch}")
    print(f"torch {torch.__version__}, {given.threads} threads")
    with pinned(given.threads):
        rates, size = Rates.measured(sum(X.shape), given.dim, given.threads), 4 * given.dim
        flops = 2 * sum(X.shape) * given.dim**2 / rates.product
        rows, tables = size / rates.row, sum(X.shape) * size / rates.table
        busy = os.getloadavg()[0]
        print(
            f"rows gathered {rows / 1e9:.0f} GB/s, tables in order {tables / 1e9:.0f} GB/s, products {flops / 1e9:.0f} GFLOP/s"
        )
        print(f"load of the machine in the last minute, this process included: {busy:.1f}")
        print(f"{'seconds a step':24s} {'product':>9s} {'least':>8s} {'bound':>8s} {'/bound':>6s} {'least/':>6s}", end="")
        print(f" {'recipe':>9s} {'ratio':>7s} {'building':>9s}   largest difference")
        for name, values in TASKS:
            if name in given.encoders:
                compare(name, X, graph, values, given, rates)


if __name__ == "__main__":
    main()
