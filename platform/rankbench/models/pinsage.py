r"""PinSage: convolutions over the nodes that random walks visit most (Ying et al., KDD 2018, Algorithm 1).

$$n_h = \sum_{t \in N(h)} \alpha_{ht} \operatorname{ReLU}(x_t Q + q), \qquad
z_h = \operatorname{ReLU}([x_h, n_h] W + w), \qquad z_h \leftarrow z_h / |z_h|$$

paper α → shares of visits; T → `n_neighbours`; K → `convolutions`; Q, q, W, w → learned weights of each layer.
As in the comparison of Wang et al. (SIGIR 2019), the nodes are users and items, their learned vectors the features, and the
last layer is scored by default. With neighbours=all, a node's neighbours are those of its interactions with α = 1/degree:
GraphSAGE with means.
Differs from the paper: no dense layers after the convolutions. The last layer is linear by default, because after ReLU and unit
length all scores lie in \[0, 1\], where BPR cannot fall below 0.313. Walks are drawn once per fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankbench.core.devices import compiled
from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.models.edges import INDEX, Edges, weighted_sums
from rankbench.models.layers import xavier
from rankbench.models.pinsage_layer import pinsage_layer
from rankbench.models.spec import EmbeddingModel, model
from rankbench.models.walks import most_visited


@dataclass(frozen=True)
class PinSage(Params):
    convolutions: int = param(2, "number of convolutions", Range(1, 3), ge=1)
    neighbours: Literal["walks", "all"] = param(
        "walks",
        "neighbours of a node: those of its own side that walks visit most, or all nodes that it interacts with",
        Fixed("walks"),
    )
    n_neighbours: int = param(
        10, "largest number of neighbours, for neighbours = walks", Range(3, 50), used=lambda p: p.neighbours == "walks", ge=1
    )
    n_walks: int = param(
        50,
        "number of walks from each node, for neighbours = walks",
        Range(10, 500),
        used=lambda p: p.neighbours == "walks",
        ge=1,
    )
    combine: Literal["last", "mean"] = param(
        "last", "vectors that are scored: the last convolution, or the mean of the tables and all convolutions", Fixed("last")
    )
    relu_last: bool = param(False, "whether the last convolution ends with ReLU, as in the paper", Choice(False, True))
    normalize_last: bool = param(False, "whether the scored vectors have unit length, as in the paper", Choice(False, True))


class PinSageModel(EmbeddingModel):
    """`shares` float64 (nnz,) are the weights α of `edges`. Of layer l, `messages[l]` (d, d) and `message_biases[l]` (d,) are Q
    and q, and `weights[l]` (2d, d) and `biases[l]` (d,) are W and w.
    """

    def __init__(self, edges: Edges, shares: np.ndarray, p: PinSage, users: Tensor, items: Tensor, generator: torch.Generator):
        super().__init__(users, items)
        self.edges, self.p = edges, p
        self.shares = torch.from_numpy(shares).to(users.dtype)[:, None]
        self.shares_of_tails = self.shares[torch.from_numpy(edges.reverse)]
        self.messages, self.message_biases = nn.ParameterList(), nn.ParameterList()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        dim = users.shape[1]
        for _ in range(p.convolutions):
            self.messages.append(xavier(dim, dim, generator, users))
            self.message_biases.append(nn.Parameter(users.new_zeros(dim)))
            self.weights.append(xavier(2 * dim, dim, generator, users))
            self.biases.append(nn.Parameter(users.new_zeros(dim)))

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.sides(self._scored(None))

    def rows(self, nodes: np.ndarray) -> Tensor | None:
        return self._scored(nodes) if self.p.combine == "last" and compiled(self.users.device) else None

    def _scored(self, nodes: np.ndarray | None) -> Tensor:
        """The scored vectors of all nodes, or on the CPU of some; for the latter, `combine` is "last"."""
        layers = [x := torch.cat([self.users, self.items])]
        self.shares = self.shares.to(x.device)
        weights = zip(self.messages, self.message_biases, self.weights, self.biases, strict=True)
        for number, (Q, q, W, w) in enumerate(weights, start=1):
            last = number == self.p.convolutions
            relu, unit = self.p.relu_last or not last, self.p.normalize_last or not last
            if compiled(x.device):
                some = nodes if last and nodes is not None else np.arange(self.edges.n_nodes)
                x = pinsage_layer(self.edges, some, (self.shares, self.shares_of_tails), x, (Q, q, W, w), relu, unit)
            else:
                n = weighted_sums(self.edges, self.shares, (x @ Q + q).relu())
                x = x @ W[: x.shape[1]] + n @ W[x.shape[1] :] + w
                x = x.relu() if relu else x
                x = normalize(x, dim=1) if unit else x
            layers.append(x)
        return x if self.p.combine == "last" else sum(layers[1:], start=layers[0]) / len(layers)


@model(
    "pinsage",
    PinSage,
    title="PinSage: convolutions over the nodes that random walks visit most",
    source="Ying et al., KDD 2018",
    paper_loss="bpr",
    layers=lambda p: 3 * p.convolutions,
    per_edge=lambda p: INDEX,
)
def pinsage(X: sp.csr_array, p: PinSage, users: Tensor, items: Tensor, generator: torch.Generator) -> PinSageModel:
    edges = Edges.between(X)
    # Drawn in both cases, so that the weights start from the same numbers.
    key = int(torch.randint(2**63 - 1, (), generator=generator))
    if p.neighbours == "walks":
        edges, shares = most_visited(edges, key, p.n_walks, p.n_neighbours)
    else:
        shares = 1 / np.repeat(edges.degree, edges.degree)
    return PinSageModel(edges, shares, p, users, items, generator)
