r"""LightGCN: learned vectors, propagated over the graph of the interactions (He et al., SIGIR 2020, Eq. 3, 4 and 8).

$$[U; V] = \frac{1}{L + 1} \sum_{l=0}^{L} \hat A^l E, \qquad
\hat A = \begin{pmatrix} 0 & R \\ R^\top & 0 \end{pmatrix}, \qquad R = D_u^{-1/2} X D_i^{-1/2}$$

paper K, the number of layers → `n_layers`; $\alpha_k$ → 1/(L + 1), as the paper sets it; $e^{(0)}$ → `users`, `items`
"""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.params import Params, Range, param
from rankbench.models.propagation import Graph, propagate
from rankbench.models.spec import EmbeddingModel, model


@dataclass(frozen=True)
class LightGCN(Params):
    n_layers: int = param(3, "number of graph layers", Range(1, 4), ge=1)


@model(
    "lightgcn",
    LightGCN,
    title="LightGCN: vectors propagated over the interaction graph",
    source="He et al., SIGIR 2020",
    paper_loss="bpr",
    layers=lambda p: p.n_layers,
    short_rows=True,
)
class LightGCNModel(EmbeddingModel):
    def __init__(self, X: sp.csr_array, p: LightGCN, users: Tensor, items: Tensor, generator: torch.Generator):
        super().__init__(users, items)
        self.graph = Graph(X)
        self.polynomial = [1 / (p.n_layers + 1)] * (p.n_layers + 1)

    def forward(self) -> tuple[Tensor, Tensor]:
        return propagate(self.graph, self.users, self.items, self.polynomial)
