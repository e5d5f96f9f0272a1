r"""GAT: graph attention over the interactions, with learned vectors as features (Veličković et al., ICLR 2018, Eq. 1 to 6).

$$H = E W, \qquad \alpha_{hj} = \operatorname*{softmax}_{j \in N(h) \cup \{h\}}
  \operatorname{LeakyReLU}(a_{\text{dst}} \cdot H_h + a_{\text{src}} \cdot H_j), \qquad E'_h = \sum_j \alpha_{hj} H_j$$

paper W, a = ($a_{\text{dst}}, a_{\text{src}}$) → learned weights of each layer and head; K → `n_heads`; slope of LeakyReLU 0.2.
Hidden layers concatenate heads of width d/K and apply ELU (Eq. 5); the last layer takes the mean of heads of width d and is
linear (Eq. 6). As a recommender, its nodes are users and items, and by default the last layer is scored.
Differs from the paper: no dropout, which is meant for graphs of few labels, and no bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu, leaky_relu

from rankbench.core.devices import compiled
from rankbench.core.errors import require
from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.models.edges import INDEX, Edges, segment_sums, weighted_sums
from rankbench.models.gat_layer import SLOPE, gat_layer
from rankbench.models.layers import xavier
from rankbench.models.spec import EmbeddingModel, model


@dataclass(frozen=True)
class GAT(Params):
    attention_layers: int = param(2, "number of attention layers", Range(1, 3), ge=1)
    n_heads: int = param(1, "number of attention heads in each layer, a divisor of embedding_dim", Choice(1, 2, 4, 8), ge=1)
    self_loops: bool = param(True, "whether a node attends to itself, as in the paper", Choice(True, False))
    combine: Literal["last", "mean", "concat"] = param(
        "last",
        "vectors that are scored: the last layer, or the mean or concatenation of layers 0 to the last",
        Fixed("last"),
    )


@model(
    "gat",
    GAT,
    title="GAT: attention over the interaction graph",
    source="Veličković et al., ICLR 2018",
    paper_loss="bpr",
    layers=lambda p: 4 * (p.attention_layers - 1 + p.n_heads),  # the heads of the last layer have the whole width each
    per_edge=lambda p: INDEX,
)
class GATModel(EmbeddingModel):
    """The matrices W of layer l's heads, side by side, are `weights[l]` (d, K·c); their a_dst and a_src are `at_head[l]` and
    `at_tail[l]` (c, K). Raises ConfigError if the vectors cannot be divided among the heads.
    """

    def __init__(self, X: sp.csr_array, p: GAT, users: Tensor, items: Tensor, generator: torch.Generator):
        dim = users.shape[1]
        require(dim % p.n_heads == 0, f"embedding_dim = {dim} must be a multiple of n_heads = {p.n_heads}")
        super().__init__(users, items)
        self.edges, self.p = Edges.between(X, loops=p.self_loops), p
        self.weights, self.at_head, self.at_tail = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for layer in range(p.attention_layers):
            c = dim if layer == p.attention_layers - 1 else dim // p.n_heads
            self.weights.append(xavier(dim, c, generator, users, copies=p.n_heads))
            for side in (self.at_head, self.at_tail):
                side.append(xavier(c, 1, generator, users, copies=p.n_heads))

    @property
    def width(self) -> int:
        return self.users.shape[1] * (self.p.attention_layers + 1 if self.p.combine == "concat" else 1)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.sides(self._scored(None))

    def rows(self, nodes: np.ndarray) -> Tensor | None:
        return self._scored(nodes) if self.p.combine == "last" and compiled(self.users.device) else None

    def _scored(self, nodes: np.ndarray | None) -> Tensor:
        """The scored vectors of some nodes, or of all, if None; for the former, `combine` is "last"."""
        layers = [torch.cat([self.users, self.items])]
        for number in range(self.p.attention_layers):
            last = number == self.p.attention_layers - 1
            heads = self.layer(layers[-1], number, nodes if last else None)
            layers.append(heads.mean(dim=1) if last else heads.flatten(1))
        if self.p.combine == "last":
            return layers[-1]
        layers[1:-1] = [elu(x) for x in layers[1:-1]]
        return torch.cat(layers, dim=1) if self.p.combine == "concat" else sum(layers[1:], start=layers[0]) / len(layers)

    def layer(self, x: Tensor, number: int, nodes: np.ndarray | None = None) -> Tensor:
        """The heads (m, K, c) of a layer before their non-linearity, of all nodes, or on the CPU of `nodes` (m,).

        x (n_nodes, d) is what the layer before gives, whose ELU is the input; for the first layer, x itself is.
        """
        weight, at_head, at_tail, activated = self.weights[number], self.at_head[number], self.at_tail[number], number > 0
        if compiled(x.device):
            nodes = np.arange(len(x)) if nodes is None else nodes
            return gat_layer(self.edges, nodes, x, weight, at_head, at_tail, activated).unflatten(1, (self.p.n_heads, -1))
        H = (elu(x) if activated else x) @ weight
        heads = H.unflatten(1, (self.p.n_heads, -1))
        t, s = (torch.einsum("nkc,ck->nk", heads, a) for a in (at_head, at_tail))
        return weighted_sums(self.edges, attention(self.edges, t, s), H).unflatten(1, (self.p.n_heads, -1))


def attention(edges: Edges, at_head: Tensor, at_tail: Tensor) -> Tensor:
    """α (nnz, K) from a_dst · H_h = `at_head` and a_src · H_j = `at_tail`, (n_nodes, K) of one floating dtype and device.

    These are PyTorch operations, for devices that the loops of `gat_layer.py` do not serve. Differentiable once in both.
    """
    return _Attention.apply(edges, at_head.contiguous(), at_tail.contiguous())


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges: Edges, at_head: Tensor, at_tail: Tensor) -> Tensor:
        e = edges.on(at_head.device)
        score = leaky_relu(at_head[e.head] + at_tail[e.tail], SLOPE)
        largest = torch.segment_reduce(score, "max", offsets=e.indptr, axis=0)
        share = (score - largest[e.head]).exp()
        alpha = share / segment_sums(share, e.indptr)[e.head]
        ctx.edges = edges
        ctx.save_for_backward(at_head, at_tail, alpha)
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        # For z = t_h + s_j: ∂z_e = LeakyReLU'(z_e) · α_e (∂α_e − Σ_{e' into h} α_e' ∂α_e').
        at_head, at_tail, alpha = ctx.saved_tensors
        edges, grad = ctx.edges, grad.contiguous()
        e = edges.on(grad.device)
        product = alpha * grad
        dz = product - alpha * segment_sums(product, e.indptr)[e.head]
        dz = torch.where(at_head[e.head] + at_tail[e.tail] > 0, dz, SLOPE * dz)
        return None, segment_sums(dz, e.indptr), segment_sums(dz[e.reverse], e.reversed_indptr)
