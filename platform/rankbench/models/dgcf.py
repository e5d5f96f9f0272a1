r"""DGCF: disentangled graph collaborative filtering (Wang et al., SIGIR 2020; program `DGCF_v1`).

$$\begin{aligned} & P_{ek} = \operatorname{softmax}_k S_{ek}, \qquad D_{hk} = \sum_{e \to h} P_{ek}, \qquad
  Y_{hk} = \sum_{e = (h \leftarrow t)} \frac{P_{ek}}{\sqrt{D_{hk} D_{tk}}}\, x_{tk} \\
& S_{ek} \leftarrow S_{ek} + \operatorname{unit}(Y_{hk}) \cdot \tanh(\operatorname{unit}(x_{tk})) \\
& [U; V] = \frac{1}{L + 1} \sum_{l=0}^{L} \text{layer } l, \qquad
  \text{own loss: } \frac{2 \lambda}{K(K + 1)} \sum_{k<K} \operatorname{dCor}(\text{chunk } k, \text{chunk } k + 1)
\end{aligned}$$

A layer is Y of the last of its T iterations, and the x of the next one.

paper K → `n_intents`; T → `n_routings`; L → `n_layers`; λ → `cor_weight`. A vector has a chunk for each intent. S starts as 1.
As in the program, S goes on from layer to layer, both degrees are sums of rows, although P is not symmetric, and dCor compares
chunks that follow one another, not all pairs; other than there, it reads at most 1,024 users and as many items, which are drawn
in each step. Gradients pass through S.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from rankbench.core.errors import require
from rankbench.core.params import Params, Range, param
from rankbench.models.edges import INDEX, Edges, edge_products, weighted, weighted_sums
from rankbench.models.routing import intent_shares
from rankbench.models.spec import EmbeddingModel, model

_LEAST_DEGREE = 1e-8  # of a node without interactions, so that its vector is 0 and not NaN
_EPS, _LEAST = 1e-8, 1e-10  # of the distance correlation
_MOST_ROWS = 1024  # users, and items, of the independence term: its distances are a matrix of all pairs of rows


@dataclass(frozen=True)
class DGCF(Params):
    n_layers: int = param(3, "number of graph layers", Range(1, 4), ge=1)
    n_intents: int = param(4, "number of intents K, a divisor of embedding_dim", Range(1, 16), ge=1)
    n_routings: int = param(2, "number of routing iterations T in each layer", Range(1, 3), ge=1)
    cor_weight: float = param(0.01, "weight λ of the distance correlation of adjacent intents", Range(0.00001, 0.1), ge=0)


@model(
    "dgcf",
    DGCF,
    title="DGCF: disentangled intents, routed over the interaction graph",
    source="Wang et al., SIGIR 2020",
    paper_loss="bpr",
    layers=lambda p: (6 + p.n_intents) * p.n_layers * p.n_routings,
    per_edge=lambda p: INDEX + 2 * p.n_intents * (p.n_layers * p.n_routings + 4),
)
class DGCFModel(EmbeddingModel):
    """Raises ConfigError if the vectors cannot be divided among the intents."""

    def __init__(self, X: sp.csr_array, p: DGCF, users: Tensor, items: Tensor, generator: torch.Generator):
        dim = users.shape[1]
        require(dim % p.n_intents == 0, f"embedding_dim = {dim} must be a multiple of n_intents = {p.n_intents}")
        super().__init__(users, items)
        self.edges, self.p, self.generator = Edges.between(X), p, generator
        self.final: tuple[Tensor, Tensor] | None = None  # kept by `forward` until `own_loss` uses them

    def forward(self) -> tuple[Tensor, Tensor]:
        x, logits = torch.cat([self.users, self.items]), None
        total = x
        for layer in range(self.p.n_layers):
            x, logits = self.layer(x, logits, last=layer == self.p.n_layers - 1)
            total = total + x
        vectors = self.sides(total / (self.p.n_layers + 1))
        self.final = vectors if self.training else None
        return vectors

    def layer(self, x: Tensor, logits: Tensor | None, last: bool) -> tuple[Tensor, Tensor | None]:
        """Return the layer's output for the input x (n_nodes, d), and the logits S (nnz, K) that it ends with.

        `logits` are those that the layer begins with; None: all 1. After the `last` layer nobody reads them, so its last
        iteration does not compute them.
        """
        tail = self.unit(x).tanh()
        y = x
        for iteration in range(self.p.n_routings):
            y = self.propagated(x, logits)
            if not (last and iteration == self.p.n_routings - 1):
                change = edge_products(self.edges, self.unit(y), tail, self.p.n_intents)
                logits = change + (1 if logits is None else logits)
        return y, logits

    def propagated(self, x: Tensor, logits: Tensor | None) -> Tensor:
        """Y (n_nodes, d) of the chunks of x (n_nodes, d)."""
        if logits is None:  # all intents have the same shares, which one column states
            shares = x.new_full((self.edges.nnz, 1), 1 / self.p.n_intents)
            degrees = torch.from_numpy(self.edges.degree / self.p.n_intents).to(x)[:, None]
        else:
            shares, degrees = intent_shares(self.edges, logits)
        # P/√(D_h D_t) as two scalings of nodes, which are fewer than edges.
        scale = degrees.clamp(min=_LEAST_DEGREE).rsqrt()
        return weighted(scale, weighted_sums(self.edges, shares, weighted(scale, x)))

    def unit(self, x: Tensor) -> Tensor:
        """Each chunk divided by its length."""
        return normalize(x.unflatten(1, (self.p.n_intents, -1)), dim=2).flatten(1)

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """λ times the independence term of users and items drawn without replacement. Their number is the program's: about as
        many in all steps of an epoch as there are users, or items if these are more; at most 1,024 of either.
        """
        final, self.final = self.final, None
        if final is None or not self.p.cor_weight or self.p.n_intents == 1:
            return None
        share = 2 * len(users) / self.edges.nnz  # of the interactions, which are two edges each
        wanted = min(_MOST_ROWS, math.ceil(share * max(len(side) for side in final)))
        drawn = [torch.randperm(len(side), generator=self.generator)[:wanted].to(side.device) for side in final]
        rows = torch.cat([side[ids] for side, ids in zip(final, drawn, strict=True)])
        K = self.p.n_intents
        return self.p.cor_weight * 2 / (K * (K + 1)) * distance_correlations(rows.chunk(K, dim=1)).sum()


def distance_correlations(samples: Sequence[Tensor]) -> Tensor:
    """The distance correlations dCor of each sample (n, c) and the next one, in the form of DGCF's program:

        a_ij = √(|x_i − x_j|² + ε),    A = a − row means − column means + mean,    dCov(A, B) = √(max(mean(A ∘ B), 0) + ε)
        dCor(x, y) = dCov(A, B) / (√(dCov(A, A) dCov(B, B)) + 1e-10),    ε = 1e-8

    (Székely, Rizzo and Bakirov, 2007.) ε stands inside the roots, where it keeps their gradients finite: the distance of a row
    to itself is 1e-4.
    """
    centred = [_centred(sample) for sample in samples]
    each = [(A, _covariance(A, A)) for A in centred]
    return torch.stack([_covariance(A, B) / ((a * b).sqrt() + _LEAST) for (A, a), (B, b) in pairwise(each)])


def _centred(x: Tensor) -> Tensor:
    squares = x.square().sum(dim=1)
    distance = ((squares[:, None] - 2 * x @ x.T + squares).clamp(min=0) + _EPS).sqrt()
    return distance - distance.mean(dim=0) - distance.mean(dim=1, keepdim=True) + distance.mean()


def _covariance(A: Tensor, B: Tensor) -> Tensor:
    return ((A * B).mean().clamp(min=0) + _EPS).sqrt()
