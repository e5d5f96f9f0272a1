r"""SimpleX: a user is a vector of its own and a pooled history (Mao et al., CIKM 2021).

$$\begin{aligned} p_u &= \gamma u + (1 - \gamma) W_v a_u, \qquad a_u = \sum_{j \in I_u} \alpha_j e_j \\
\alpha_j &= \frac{1}{|I_u|} \;\text{(mean)}, \qquad
  \alpha = \operatorname{softmax}_j\bigl(u \cdot \tanh(W_k e_j + b_k)\bigr) \;\text{(user attention)} \end{aligned}$$

`self_attention` is the same with a learned vector in the place of u.

paper γ → `own_weight`; 1 is MF.
In training, the row's own item is not part of the history. The paper's loss is `ccl`, with
cosines; its program sets numbers of the direction of $p_u$ to 0 in training (user_dropout), so that a positive's score may be
above 1. On Gowalla, the program has a table of its own for histories (shared_items = false), and one table elsewhere. It fills
histories up to the longest one of its file with items of logit 0, which take part in the softmax: `pad` is that length, 0 for a
proper softmax. It also bounds the length of the gradient by 10, which is not done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import scipy.sparse as sp
import torch
from torch import Generator, Tensor, nn

from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.models.edges import edge_products, weighted_sums
from rankbench.models.histories import Bags, PooledModel
from rankbench.models.layers import linear
from rankbench.models.spec import model


@dataclass(frozen=True)
class SimpleX(Params):
    aggregator: Literal["mean", "user_attention", "self_attention"] = param(
        "mean", "weights of the items of a history: equal, or by attention", Choice("mean", "user_attention", "self_attention")
    )
    own_weight: float = param(0.5, "weight γ of the user's own vector beside the history", Range(0, 1), ge=0, le=1)
    user_dropout: float = param(0.0, "share of a user's numbers that are set to 0 in training", Choice(0, 0.1), ge=0, lt=1)
    shared_items: bool = param(
        True, "whether histories have the vectors of the scored items, or a table of their own", Choice(True, False)
    )
    pad: int = param(
        0,
        "length that the program fills histories up to with items of logit 0; 0: none",
        Fixed(0),
        used=lambda p: p.aggregator != "mean",
        ge=0,
    )


@model(
    "simplex",
    SimpleX,
    title="SimpleX: a user's own vector and a pooled history",
    source="Mao et al., CIKM 2021",
    paper_loss="ccl",
    per_row=True,
    noise_per_row=lambda p: "user_dropout" if p.user_dropout else "",
)
class SimpleXModel(PooledModel):
    def __init__(self, X: sp.csr_array, p: SimpleX, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(X, p, users, items, generator)
        width = items.shape[1]
        noise = torch.randn(items.shape, generator=generator, dtype=torch.float32).to(items.dtype)
        self.history = None if p.shared_items else nn.Parameter(noise * items.std())
        self.values = linear(width, generator, items, bias=False)
        attends = p.aggregator != "mean"
        self.keys = linear(width, generator, items) if attends else None
        start = torch.randn(width, generator=generator, dtype=torch.float32).to(items.dtype) / width**0.5
        self.query = nn.Parameter(start) if p.aggregator == "self_attention" else None

    def pooled(self, users: Tensor, bags: Bags) -> Tensor:
        """The vectors p (m, d) of `users` (m, d) and their bags; an empty bag adds nothing."""
        if self.p.own_weight == 1:
            return users
        table = self.items if self.history is None else self.history
        if self.keys is None:
            history = bags.sums(table) / bags.sizes.clamp(min=1)[:, None]
        else:
            history = self.attended(users, bags, table)
        return self.p.own_weight * users + (1 - self.p.own_weight) * self.values(history)

    def attended(self, users: Tensor, bags: Bags, table: Tensor) -> Tensor:
        """The sums (m, d) of the bags' items with weights α. Bags and the items that they use are the nodes of a graph, so that
        neither a key nor an item's vector is copied once per occurrence.
        """
        used, place = bags.items.unique(return_inverse=True)
        vectors = table.index_select(0, used)
        keys = torch.tanh(self.keys(vectors))
        edges = bags.edges(place, len(used))
        if self.query is not None:
            logits = (keys @ self.query)[place]
        else:
            nodes = torch.cat([users, keys])
            logits = edge_products(edges, nodes, nodes, 1)[:, 0]
        weights = bags.softmax(logits, self.p.pad)[:, None]
        return weighted_sums(edges, weights, torch.cat([torch.zeros_like(users), vectors]))[: len(users)]
