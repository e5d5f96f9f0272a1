"""A training step of every graph encoder beside the plain PyTorch recipe, side by side in one process.

    python benchmarks/encoders.py                      all encoders, on a graph of about Gowalla's size: some minutes
    python benchmarks/encoders.py gat dgcf --scale 0.1 two of them, on a tenth of the users, items and interactions

A step is one pass over the whole graph, BPR with one negative of `--batch` positives, the encoder's own loss and all gradients,
without the optimiser, which is the same. The recipe gathers a vector for each edge and adds it to its head by index_add_;
LightGCN, XSimGCL, NGCF and SGL multiply by a sparse matrix instead, and GAT is torch_geometric's GATConv if that is installed.
DGCF has one layer, because the recipe keeps 1 GB per iteration. Both sides have the same weights, and the largest difference of
their vectors is printed. They alternate, and medians count. In a fit, PyTorch's own operations have one thread, as here on the
side of the product; the recipe has `--threads`.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F

from rankbench.core.threads import pinned
from rankbench.models import propagation
from rankbench.models.spec import EmbeddingModel, registered

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


def softmax_per_head(score: Tensor, head: Tensor, n_nodes: int) -> Tensor:
    """A softmax over the edges of each head, by scatter operations; score (nnz,)."""
    largest = torch.full((n_nodes,), -torch.inf).scatter_reduce(0, head, score.detach(), "amax")
    share = (score - largest[head]).exp()
    return share / torch.zeros(n_nodes).index_add_(0, head, share)[head]


def gat(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
    x, nodes = tables(model), torch.arange(graph.n_nodes)
    head, tail = torch.cat([graph.head, nodes]), torch.cat([graph.tail, nodes])
    for number, (W, a_dst, a_src) in enumerate(zip(model.weights, model.at_head, model.at_tail, strict=True), start=1):
        H = x @ W
        alpha = softmax_per_head(F.leaky_relu((H @ a_dst)[head, 0] + (H @ a_src)[tail, 0], 0.2), head, graph.n_nodes)
        x = torch.zeros_like(H).index_add_(0, head, alpha[:, None] * H[tail])
        x = F.elu(x) if number < len(model.weights) else x
    return graph.split(x)


def gat_of_torch_geometric(model: EmbeddingModel, graph: Graph) -> tuple[Tensor, Tensor]:
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


has_geometric = importlib.util.find_spec("torch_geometric") is not None
RECIPES: dict[str, Recipe] = {
    "lightgcn": lightgcn,
    "xsimgcl": xsimgcl,
    "gat": gat_of_torch_geometric if has_geometric else gat,
    "dgcf": dgcf,
    "pinsage": pinsage,
    "ngcf": ngcf,
    "sgl": sgl,
}
OWN_LOSSES = {"sgl": contrast_of_sgl}  # where the recipe has another


def compare(
    name: str, X: sp.csr_array, graph: Graph, values: dict[str, int], dim: int, batch: int, rounds: int, threads: int
) -> None:
    encoder, start = registered().get(name), torch.Generator().manual_seed(0)
    vectors = [torch.randn(n, dim, generator=start) * 0.1 for n in X.shape]
    began = time.perf_counter()
    model = encoder.build(X, encoder.params(**values), *vectors, torch.Generator().manual_seed(1)).train()
    model.begin_epoch(1)
    built = time.perf_counter() - began
    chosen = torch.randint(X.nnz, (batch,), generator=start)
    users, items = graph.head[: X.nnz][chosen], graph.tail[: X.nnz][chosen] - X.shape[0]
    negatives = torch.randint(X.shape[1], (batch,), generator=start)

    def step(side: str, forward: Callable[[], tuple[Tensor, Tensor]]) -> float:
        torch.set_num_threads(1 if side == "product" else threads)
        model.zero_grad()
        began = time.perf_counter()
        U, V = forward()
        loss = F.softplus((U[users] * (V[negatives] - V[items])).sum(dim=1)).mean()
        own_loss = OWN_LOSSES.get(name) if side == "recipe" else None
        own = own_loss(model, users, items) if own_loss else model.own_loss(users, items)
        (loss if own is None else loss + own).backward()
        return time.perf_counter() - began

    sides = {"product": model.forward, "recipe": lambda: RECIPES[name](model, graph)}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side in list(sides) if turn % 2 else list(sides)[::-1]:
            taken = step(side, sides[side])
            if turn:  # the first compiles
                seconds[side].append(taken)
    with torch.no_grad():
        difference = max(float((a - b).abs().max()) for a, b in zip(*(forward() for forward in sides.values()), strict=True))
    ours, recipe = (statistics.median(seconds[side]) for side in sides)
    label = " ".join([name, *(f"{key}={value}" for key, value in values.items())])
    apart = "noise" if name == "xsimgcl" else f"{difference:.1e}"
    print(f"{label:24s} {ours:9.3f} {recipe:9.3f} {recipe / ours:7.1f}x {built:9.2f}   {apart}", flush=True)


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
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    X = random_graph(given.scale)
    torch.sparse.check_sparse_tensor_invariants.disable()  # said, or the recipe warns of it
    graph, peer = Graph(X), "torch_geometric" if has_geometric else "scatter operations"
    print(f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} interactions; dimension {given.dim}, batch {given.batch}")
    print(f"torch {torch.__version__}, {given.threads} threads; the recipe of GAT: {peer}")
    print(f"{'seconds a step':24s} {'product':>9s} {'recipe':>9s} {'ratio':>8s} {'building':>9s}   largest difference")
    with pinned(given.threads):
        for name, values in TASKS:
            if name in given.encoders:
                compare(name, X, graph, values, given.dim, given.batch, given.rounds, given.threads)


if __name__ == "__main__":
    main()
