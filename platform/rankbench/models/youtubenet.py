r"""YouTubeNet: a user is the mean of the vectors of the user's items (Covington, Adams, Sargin, RecSys 2016, §3).

$$p_u = \frac{1}{|I_u|} \sum_{j \in I_u} v_j, \qquad \text{then } p_u \leftarrow \operatorname{ReLU}(W p_u + b)
  \text{ in each of the layers}, \qquad y_{ui} = p_u \cdot v_i$$

In training, the row's own item is not part of the mean. There are no vectors of users. Without layers, the scores of a user are
a product of the history and V Vᵀ, so that the model scores users who were not fitted.
Differs from the paper: there are no features but the items, as in the run whose numbers Mao et al. (CIKM 2021) publish; its
loss is `sampled-softmax` with uniform negatives. In that paper the tower narrows; here all layers have one width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Generator, Tensor, nn

from rankbench.core.params import Choice, Params, param
from rankbench.fitting.recommenders import LowRankRecommender
from rankbench.models.histories import Bags, PooledModel
from rankbench.models.layers import linear
from rankbench.models.spec import model


@dataclass(frozen=True)
class YouTubeNet(Params):
    n_towers: int = param(0, "number of ReLU layers above the mean", Choice(0, 1, 2), ge=0)
    user_dropout: float = param(0.0, "share of a user's numbers that are set to 0 in training", Choice(0, 0.1), ge=0, lt=1)


@model(
    "youtubenet",
    YouTubeNet,
    title="YouTubeNet: a user is the mean of the user's items",
    source="Covington, Adams, Sargin, RecSys 2016; Mao et al., CIKM 2021",
    paper_loss="sampled-softmax",
    per_row=True,
    noise_per_row=lambda p: "user_dropout" if p.user_dropout else "",
    folds=lambda p: not p.n_towers,
)
class YouTubeNetModel(PooledModel):
    def __init__(self, X: sp.csr_array, p: YouTubeNet, users: Tensor, items: Tensor, generator: Generator):
        super().__init__(X, p, users[:, :0], items, generator)
        self.tower = nn.ModuleList(linear(items.shape[1], generator, items) for _ in range(p.n_towers))

    def pooled(self, users: Tensor, bags: Bags) -> Tensor:
        """The vector of each bag, (m, d); zeros before the layers for an empty bag."""
        vectors = bags.sums(self.items) / bags.sizes.clamp(min=1)[:, None]
        for layer in self.tower:
            vectors = torch.relu(layer(vectors))
        return vectors

    def recommender(self, users: Tensor, items: Tensor) -> LowRankRecommender | None:
        # Distances depend on the number of a user's items, which a product with the history does not know.
        if self.p.n_towers or items.shape[1] != self.items.shape[1]:
            return None
        A, B = (np.array(table.detach().cpu().numpy()) for table in (self.items, items))
        return LowRankRecommender(A, B, np.zeros(len(B)))
