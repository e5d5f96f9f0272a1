r"""NGCF: graph layers with weights and products of neighbours (Wang et al., SIGIR 2019).

$$\begin{aligned} \textsf{program:} \quad & S = \tilde A E_l, \quad H = f(S W_1 + b_1) + f((S \odot E_l) W_2 + b_2), \quad
  E_{l+1} = \operatorname{dropout}(H), \\
& \text{scored: } E_0 \mathbin\Vert E_1/|E_1| \mathbin\Vert \dots \mathbin\Vert E_L/|E_L|, \text{ row by row} \\
\textsf{paper:} \quad & E_{l+1} = \operatorname{dropout}\bigl(f((\hat A + I) E_l W_1 + (\hat A E_l \odot E_l) W_2)\bigr)
  \quad \text{(Eq. 7)}, \\
& \text{scored: } E_0 \mathbin\Vert E_1 \mathbin\Vert \dots \mathbin\Vert E_L \quad \text{(Eq. 9)} \end{aligned}$$

`ngcf_form` chooses between them. f is LeakyReLU with slope 0.2, and $\hat A = D^{-1/2} A D^{-1/2}$. The published numbers are
those of the program, whose $\tilde A$ is $(D + I)^{-1} (A + I)$ with adjacency = self, $D^{-1} A$ with mean, and
$D^{-1} A + I$ with mean-and-self; W and b start by Xavier's rule.
Differs from the program: no nodes are dropped, and training does not start from the tables of an MF; init = ials is near.
paper L → `n_layers`; message dropout → `message_dropout`; the decay of final vectors → decay = batch-negatives
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import leaky_relu

from rankbench.core.devices import compiled
from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.core.simd import LANES
from rankbench.models.layers import dropout, xavier
from rankbench.models.ngcf_layer import SLOPE, ngcf_layer
from rankbench.models.ngcf_rows import ngcf_rows
from rankbench.models.propagation import Graph, propagate
from rankbench.models.spec import EmbeddingModel, model


@dataclass(frozen=True)
class NGCF(Params):
    n_layers: int = param(3, "number of graph layers", Range(1, 4), ge=1)
    ngcf_form: Literal["program", "paper"] = param(
        "program", "layers of the authors' program, or of the paper's Eq. 7", Choice("program", "paper")
    )
    adjacency: Literal["self", "mean", "mean-and-self"] = param(
        "self",
        "mean over neighbours and the node, over neighbours, or the latter plus the node; for ngcf_form = program",
        Fixed("self"),
        used=lambda p: p.ngcf_form == "program",
    )
    message_dropout: float = param(0.1, "share of a layer's numbers that are set to 0 in training", Range(0, 0.8), ge=0, lt=1)


@model(
    "ngcf",
    NGCF,
    title="NGCF: graph layers with weights",
    source="Wang et al., SIGIR 2019",
    paper_loss="bpr",
    layers=lambda p: 2 * p.n_layers,  # a layer with its two products takes about as long as two of LightGCN
)
class NGCFModel(EmbeddingModel):
    def __init__(self, X: sp.csr_array, p: NGCF, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(users, items)
        self.graph, self.p, self.generator = Graph(X), p, generator
        width = users.shape[1]
        self.W = nn.ParameterList(xavier(width, width, generator, users) for _ in range(2 * p.n_layers))
        biases = [xavier(1, width, generator, users) for _ in range(2 * p.n_layers if p.ngcf_form == "program" else 0)]
        self.b = nn.ParameterList(biases)
        degree = torch.from_numpy(self.graph.indptr).diff().to(users.dtype)
        # With the node among its neighbours the mean has one part more.
        share = 1 / (degree + 1) if p.adjacency == "self" else 1 / degree.clamp(min=1)
        self.register_buffer("share", share, persistent=False)

    @property
    def width(self) -> int:
        return self.items.shape[1] * (self.p.n_layers + 1)

    def forward(self) -> tuple[Tensor, Tensor]:
        vectors = self.rows(np.arange(self.graph.n_nodes))
        if vectors is not None:
            return self.sides(vectors)
        sides, scored = (self.users, self.items), [[self.users], [self.items]]
        layer = self.program_layer if self.p.ngcf_form == "program" else self.paper_layer
        for number in range(self.p.n_layers):
            # Each side has the vectors of the next layer, and those that are scored.
            sides, last = zip(*layer(number, *sides), strict=True)
            for layers, vectors in zip(scored, last, strict=True):
                layers.append(vectors)
        users, items = (torch.cat(layers, dim=1) for layers in scored)
        return users, items

    def rows(self, nodes: np.ndarray) -> Tensor | None:
        device, width = self.users.device, self.users.shape[1]
        if self.p.ngcf_form == "paper" or not compiled(device) or self.graph.shared(device) or width % LANES:
            return None
        rate, adjacency = self.p.message_dropout if self.training else 0.0, self.p.adjacency
        layers = range(self.p.n_layers)
        keys = [tuple(self.key(rate) for _side in range(2)) for _layer in layers]
        weights = [each for k in layers for each in (self.W[2 * k], self.b[2 * k], self.W[2 * k + 1], self.b[2 * k + 1])]
        around = adjacency == "self", adjacency == "mean-and-self"
        return ngcf_rows(self.graph, nodes, self.share, around, rate, keys, self.users, self.items, weights)

    def key(self, rate: float) -> int:
        return int(torch.randint(2**62, (), generator=self.generator)) if rate else 0

    def program_layer(self, number: int, U: Tensor, V: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The next layer of users and of items, each with its unit rows."""
        weights = self.W[2 * number], self.b[2 * number], self.W[2 * number + 1], self.b[2 * number + 1]
        sums = propagate(self.graph, U, V, [float(self.p.adjacency == "self"), 1.0], scaled=False)
        rate, own = self.p.message_dropout if self.training else 0.0, self.p.adjacency == "mean-and-self"
        result = []
        for total, vectors, share in zip(sums, (U, V), self.share.split([len(U), len(V)]), strict=True):
            result.append(ngcf_layer(total, vectors, share, own, weights, rate, self.key(rate)))
        return result

    def paper_layer(self, number: int, U: Tensor, V: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The next layer of users and of items, twice each, because they are scored as they are."""
        W1, W2 = self.W[2 * number], self.W[2 * number + 1]
        result = []
        for near, vectors in zip(propagate(self.graph, U, V, [0.0, 1.0]), (U, V), strict=True):
            vectors = leaky_relu((near + vectors) @ W1 + (near * vectors) @ W2, SLOPE)
            if self.training:
                vectors = dropout(vectors, self.p.message_dropout, self.generator)
            result.append((vectors, vectors))
        return result
