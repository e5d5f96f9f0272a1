r"""XSimGCL: LightGCN with noise in its layers and a contrastive loss between two of them (Yu et al., TKDE 2023).

$$\begin{aligned} & E_l = \hat A E_{l-1} + \varepsilon \operatorname{sign}(\hat A E_{l-1}) \odot \Delta_l/|\Delta_l|, \qquad
  \Delta_l \text{ uniform on } [0, 1], \text{ row by row} \\
& [U; V] = \frac{1}{L} \sum_{l=1}^{L} E_l, \qquad
  \text{own loss: } \lambda \sum_{\text{users, items}} \operatorname*{mean}_b
  -\log \frac{e^{z_b \cdot c_b/\tau}}{\sum_{b'} e^{z_b \cdot c_{b'}/\tau}} \end{aligned}$$

paper ε → `noise`; λ → `aux_weight`; τ → `aux_tau`; l* → `contrast_layer`; L → `n_layers`; z, c → the directions of a node's
final vector and of its vector in $E_{l^*}$; b, b' → the users, or items, of the batch, each once, or of a random group of
contrast_nodes of them.
Batches of 1,024 interactions compare at most 1,024 nodes; with objective = catalogue a batch has ten times as many.
Layer 0 is not part of the mean, so a node without interactions scores 0. Scoring uses no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.core.errors import require
from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.core.simd import LANES
from rankbench.kernels.orthant_noise import with_noise
from rankbench.kernels.rows import take_rows
from rankbench.models.contrast import contrast
from rankbench.models.propagation import Graph, propagate
from rankbench.models.spec import EmbeddingModel, model
from rankbench.models.xsimgcl_rows import xsimgcl_rows


@dataclass(frozen=True)
class XSimGCL(Params):
    n_layers: int = param(3, "number of graph layers", Range(1, 4), ge=1)
    noise: float = param(0.1, "length ε of the noise in each layer", Range(0.01, 0.5), ge=0)
    aux_weight: float = param(0.01, "weight λ of the contrastive loss", Range(0.01, 0.2), ge=0)
    aux_tau: float = param(0.2, "temperature τ of the contrastive loss", Range(0.1, 0.2), ge=0.025)
    contrast_nodes: int = param(
        0,
        "number of nodes that are compared with one another, in random groups of a batch's nodes; 0: all of the batch",
        Choice(0, 1024),
        ge=0,
    )
    contrast_layer: int = param(1, "layer l* that the final vectors are contrasted with, 1 to n_layers", Fixed("1 to n_layers"))

    def __post_init__(self) -> None:
        super().__post_init__()
        within = 1 <= self.contrast_layer <= self.n_layers
        require(within, f"contrast_layer must be from 1 to n_layers = {self.n_layers}, got {self.contrast_layer}")
        require(self.contrast_nodes != 1, "contrast_nodes must be 0 or at least 2: a node alone is compared with nothing")


@model(
    "xsimgcl",
    XSimGCL,
    title="XSimGCL: LightGCN with noise and a contrastive loss",
    source="Yu et al., TKDE 2023",
    paper_loss="bpr",
    layers=lambda p: p.n_layers,
)
class XSimGCLModel(EmbeddingModel):
    def __init__(self, X: sp.csr_array, p: XSimGCL, users: Tensor, items: Tensor, generator: torch.Generator):
        super().__init__(users, items)
        self.graph, self.p, self.generator = Graph(X), p, generator
        # Kept by `forward` until `own_loss` uses them, with the ids that their rows belong to; None: all.
        self.views: tuple[tuple[Tensor, Tensor], ...] = ()
        self.scored: tuple[Tensor, Tensor] | None = None

    def forward(self) -> tuple[Tensor, Tensor]:
        n_layers = self.p.n_layers
        if not self.training:
            return propagate(self.graph, self.users, self.items, [0.0] + [1 / n_layers] * n_layers)
        vectors = self.rows(np.arange(self.graph.n_nodes))
        if vectors is not None:
            return self.sides(vectors)
        U, V = self.users, self.items
        layers = []
        for _ in range(n_layers):
            propagated = propagate(self.graph, U, V, [0.0, 1.0])
            U, V = (with_noise(vectors, self.p.noise, self.generator) for vectors in propagated)
            layers.append((U, V))
        users, items = (sum(side[1:], start=side[0]) / n_layers for side in zip(*layers, strict=True))
        self.views = (users, layers[self.p.contrast_layer - 1][0]), (items, layers[self.p.contrast_layer - 1][1])
        self.scored = None
        return users, items

    def rows(self, nodes: np.ndarray) -> Tensor | None:
        device, width = self.users.device, self.users.shape[1]
        if not compiled(device) or self.graph.shared(device) or width % LANES:
            return None
        drawn = torch.randint(2**62, (self.p.n_layers, 2), generator=self.generator).tolist()
        given = self.p.noise, self.p.contrast_layer, self.users, self.items
        both = xsimgcl_rows(self.graph, nodes, drawn, *given)
        n = int(np.searchsorted(nodes, len(self.users)))
        self.scored = torch.from_numpy(nodes[:n]), torch.from_numpy(nodes[n:] - len(self.users))
        self.views = tuple((final, layer) for final, layer in zip(*(each.tensor_split([n]) for each in both), strict=True))
        return both[0]

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor:
        views, self.views = self.views, ()
        wanted = [ids.unique() for ids in (users, items)]
        if self.scored:
            wanted = [torch.searchsorted(scored, ids) for scored, ids in zip(self.scored, wanted, strict=True)]
        return self.p.aux_weight * sum(self.contrast(*view, ids) for view, ids in zip(views, wanted, strict=True))

    def contrast(self, final: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
        losses = []
        for group in self.groups(ids):
            own = torch.arange(len(group), device=group.device)
            losses.append(contrast(take_rows(final, group), take_rows(layer, group), own, self.p.aux_tau))
        return torch.cat(losses).mean()

    def groups(self, ids: Tensor) -> tuple[Tensor, ...]:
        """The nodes of a batch in random groups of about equal size, of at most `contrast_nodes`."""
        n_groups = -(-len(ids) // self.p.contrast_nodes) if self.p.contrast_nodes else 1
        if n_groups == 1:
            return (ids,)
        order = torch.randperm(len(ids), generator=self.generator).to(ids.device)
        return ids[order].tensor_split(n_groups)
