"""NGCF: graph layers with weights and products of neighbours (Wang et al., SIGIR 2019).

    ngcf_form = program  S = Ã E_l;  H = f(S W₁ + b₁) + f((S ⊙ E_l) W₂ + b₂);  E_{l+1} = dropout(H)
                    scored: E_0 ‖ E_1/|E_1| ‖ ... ‖ E_L/|E_L|,  row by row
    ngcf_form = paper    E_{l+1} = dropout(f((Â + I) E_l W₁ + (Â E_l ⊙ E_l) W₂))          (Eq. 7)
                    scored: E_0 ‖ E_1 ‖ ... ‖ E_L                                      (Eq. 9)

f is LeakyReLU with slope 0.2, and Â = D^-1/2 A D^-1/2. The published numbers are those of the program, whose Ã is
(D + I)^-1 (A + I) with adjacency = self, D^-1 A with mean, and D^-1 A + I with mean-and-self; W and b start by Xavier's rule.
paper L → n_layers; message dropout → message_dropout; the decay of final vectors → decay = batch-negatives
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import scipy.sparse as sp
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from rankbench.core.config import Params, param
from rankbench.models.layers import dropout, xavier
from rankbench.models.propagation import Graph, propagate
from rankbench.models.spec import EmbeddingModel, model

SLOPE = 0.2


@dataclass(frozen=True)
class NGCF(Params):
    n_layers: int = param(3, "number of graph layers", "1 to 4", ge=1)
    ngcf_form: Literal["program", "paper"] = param(
        "program", "layers of the authors' program, or of the paper's Eq. 7", "program, paper"
    )
    adjacency: Literal["self", "mean", "mean-and-self"] = param(
        "self",
        "mean over neighbours and the node, over neighbours, or the latter plus the node; for ngcf_form = program",
        "self",
        used=lambda p: p.ngcf_form == "program",
    )
    message_dropout: float = param(0.1, "share of a layer's numbers that are set to 0 in training", "0 to 0.8", ge=0, lt=1)


class NGCFModel(EmbeddingModel):
    def __init__(self, graph: Graph, p: NGCF, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(users, items)
        self.graph, self.p, self.generator = graph, p, generator
        width = users.shape[1]
        self.W = nn.ParameterList(xavier(width, width, generator, users) for _ in range(2 * p.n_layers))
        biases = [xavier(1, width, generator, users) for _ in range(2 * p.n_layers if p.ngcf_form == "program" else 0)]
        self.b = nn.ParameterList(biases)
        degree = torch.from_numpy(graph.indptr).diff()[:, None].to(users.dtype)
        self.register_buffer("degree", degree, persistent=False)

    @property
    def width(self) -> int:
        return self.items.shape[1] * (self.p.n_layers + 1)

    def forward(self) -> tuple[Tensor, Tensor]:
        E = torch.cat([self.users, self.items])
        layers = [E]
        for layer in range(self.p.n_layers):
            E = self.layer(layer, E)
            if self.training:
                E = dropout(E, self.p.message_dropout, self.generator)
            layers.append(normalize(E, dim=1) if self.p.ngcf_form == "program" else E)
        whole = torch.cat(layers, dim=1)
        return whole[: len(self.users)], whole[len(self.users) :]

    def layer(self, layer: int, E: Tensor) -> Tensor:
        """The next layer (n, d) of nodes, before dropout."""
        W, V = self.W[2 * layer], self.W[2 * layer + 1]
        if self.p.ngcf_form == "paper":
            near = self.symmetric(E)
            return leaky_relu((near + E) @ W + (near * E) @ V, SLOPE)
        S = self.averaged(E)
        b, c = self.b[2 * layer], self.b[2 * layer + 1]
        return leaky_relu(S @ W + b, SLOPE) + leaky_relu((S * E) @ V + c, SLOPE)

    def symmetric(self, E: Tensor) -> Tensor:
        """Â E."""
        n_users = len(self.users)
        return torch.cat(propagate(self.graph, E[:n_users], E[n_users:], [0.0, 1.0]))

    def averaged(self, E: Tensor) -> Tensor:
        """Ã E. The sum over neighbours is A E = D^1/2 Â D^1/2 E."""
        root = self.degree.clamp(min=1).sqrt()
        near = root * self.symmetric(root * E)
        if self.p.adjacency == "self":
            return (near + E) / (self.degree + 1)
        near = near / self.degree.clamp(min=1)
        return near if self.p.adjacency == "mean" else near + E


@model(
    "ngcf",
    NGCF,
    title="NGCF: graph layers with weights",
    source="Wang et al., SIGIR 2019",
    paper_loss="bpr",
    layers=lambda p: 2 * p.n_layers,  # a layer with its two products takes about as long as two of LightGCN
)
def ngcf(X: sp.csr_array, p: NGCF, users: Tensor, items: Tensor, generator: Generator) -> NGCFModel:
    return NGCFModel(Graph(X), p, users, items, generator)
