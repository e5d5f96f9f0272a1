r"""SGL-ED: LightGCN with a contrastive loss between two graphs that each lack some edges (Wu et al., SIGIR 2021).

$$\text{own loss: } \lambda \operatorname*{mean}_{(u, i)} \bigl[\ell(u) + \ell(i)\bigr], \qquad
\ell(v) = -\log \frac{e^{c(z'_v, z''_v)/\tau}}{\sum_w e^{c(z'_v, z''_w)/\tau}}$$

The mean is over the rows (u, i) of the batch, and c is the cosine.

paper $\lambda_1$ → `ssl_weight`; τ → `ssl_tau`; ρ → `edge_dropout`; w → all users for a user, all items for an item; z', z'' →
the vectors of LightGCN on two subgraphs, each with $\lfloor (1 - \rho)|R| \rfloor$ interactions and the degrees of what is
left; $\lambda_2$ → `weight_decay` with decay = layer-0.
The subgraphs are drawn once per epoch and are the same for all layers. With contrast_nodes, the sums over w are estimated from
a sample. Scores are those of the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Generator, Tensor

from rankbench.core.params import Choice, Params, Range, param
from rankbench.models.contrast import contrast
from rankbench.models.propagation import Graph, propagate
from rankbench.models.spec import EmbeddingModel, model


@dataclass(frozen=True)
class SGL(Params):
    n_layers: int = param(3, "number of graph layers", Range(1, 4), ge=1)
    edge_dropout: float = param(0.1, "share ρ of interactions that each of the two graphs lacks", Range(0, 0.5), ge=0, lt=1)
    ssl_weight: float = param(0.1, "weight λ_1 of the contrastive loss", Range(0.005, 1), ge=0)
    ssl_tau: float = param(0.2, "temperature τ of the contrastive loss", Range(0.1, 1), ge=0.025)
    contrast_nodes: int = param(
        0,
        "number of users, and of items, drawn for the sums over w in each step; 0: all of them, as published",
        Choice(0, 1024),
        ge=0,
    )


@model(
    "sgl",
    SGL,
    title="SGL-ED: LightGCN and a contrastive loss between two thinned graphs",
    source="Wu et al., SIGIR 2021",
    paper_loss="bpr",
    layers=lambda p: 3 * p.n_layers,
)
class SGLModel(EmbeddingModel):
    def __init__(self, X: sp.csr_array, p: SGL, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(users, items)
        self.X, self.p, self.generator = X, p, generator
        self.graph = Graph(X)
        self.parts: list[Graph] = []
        self.weights = [1 / (p.n_layers + 1)] * (p.n_layers + 1)
        self.views: list[tuple[Tensor, Tensor]] = []  # kept by `forward` until `own_loss` uses them

    def begin_epoch(self, epoch: int) -> None:
        self.parts = [Graph(self.thinned()) for _ in range(2)]

    def thinned(self) -> sp.csr_array:
        """The interactions without a share `edge_dropout` of them."""
        X = self.X
        kept = torch.randperm(X.nnz, generator=self.generator)[: int((1 - self.p.edge_dropout) * X.nnz)].sort().values.numpy()
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[kept]
        return sp.csr_array((np.ones(len(kept), X.dtype), (row, X.indices[kept])), shape=X.shape)

    def forward(self) -> tuple[Tensor, Tensor]:
        if self.training:
            if not self.parts:
                self.begin_epoch(1)
            self.views = [propagate(part, self.users, self.items, self.weights) for part in self.parts]
        return propagate(self.graph, self.users, self.items, self.weights)

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor:
        views, self.views = self.views, []
        total = self.users.new_zeros(())
        for side, ids in enumerate((users, items)):
            nodes, counts = ids.unique(return_counts=True)
            losses = contrast(views[0][side], views[1][side], nodes, self.p.ssl_tau, self.sample(len(views[0][side])))
            total = total + (losses * counts).sum() / len(ids)
        return self.p.ssl_weight * total

    def sample(self, n: int) -> Tensor | None:
        """The nodes of a kind that sums run over, ascending; None for all n of them."""
        m = self.p.contrast_nodes
        if not m or m >= n:
            return None
        return torch.randperm(n, generator=self.generator)[:m].sort().values.to(self.users.device)
