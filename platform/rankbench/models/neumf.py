r"""NeuMF, a network of a user and an item instead of a product (He et al., WWW 2017, Eq. 9, 10 and 12).

$$\begin{aligned} \textsf{he:} \quad & z_0 = [p^M, q^M], \quad z_l = \operatorname{ReLU}(z_{l-1} W_l + b_l), \quad
  \text{score} = h \cdot [p^G \odot q^G, z_L] + b \\
\textsf{ngcf:} \quad & z_0 = [u, i, u \odot i], \quad z_l \text{ as above}, \quad \text{score} = h \cdot z_L \end{aligned}$$

`network` chooses between them. `he` is the paper's. `ngcf` is the one behind the numbers that later papers print (Wang et al.,
NGCF, SIGIR 2019): one vector per user and item, and no part beside the layers.

paper $p^G, q^G$ → the first gmf_dim columns of `users`, `items`; $p^M, q^M$ → their other columns; number of layers →
`hidden_layers`.
The layers 64, 32, 16, 8 of the authors' program are network=he embedding_dim=40, with init_scale=0.01 loss bce
neg_reduction=sum n_negatives=4 sampler=uniform-other. The authors of NGCF trained `ngcf` with `bpr`; with `bce` it is nobody's.
Widths halve from layer to layer with `he`, and are equal with `ngcf`.
σ is left to the loss: the score is the logit. Layers start uniform by Glorot's rule, with zero biases; the output of `he` by
LeCun's. Each $W_l$ is the right factor of a row vector.
Differs from the papers: Adam, where the program of NGCF has RMSProp; decay=batch-negatives leaves out h. The
start from a trained GMF and MLP (Eq. 13) does not exist. NGCF starts from the vectors of a fitted BPR-MF, and its number
depends on that; init=ials starts from those of a fitted iALS instead, and `he` divides their columns between its two parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankbench.core.errors import require
from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.models.layers import dropout, xavier
from rankbench.models.spec import PairModel, model


@dataclass(frozen=True)
class NeuMF(Params):
    network: Literal["ngcf", "he"] = param(
        "ngcf", "the network of NGCF's authors, or that of the NeuMF paper", Choice("ngcf", "he")
    )
    hidden_layers: int = param(0, "number of hidden layers; 0: 2 for ngcf, 3 for he", Range(1, 4), ge=0, le=64)
    hidden_dim: int = param(0, "width of the first hidden layer; 0: that of a vector that the layers read", Fixed(64), ge=0)
    gmf_dim: int = param(
        0,
        "dimensions of the vectors that are multiplied with each other, for network = he; 0: a fifth of embedding_dim",
        Range(8, 64),
        used=lambda p: p.network == "he",
        ge=0,
    )
    hidden_dropout: float = param(0.0, "share of each hidden layer that is set to 0 in training", Range(0, 0.5), ge=0, lt=1)

    def multiplied(self, embedding_dim: int) -> int:
        """The number of dimensions that go to the output as p^G ⊙ q^G."""
        return 0 if self.network == "ngcf" else self.gmf_dim or embedding_dim // 5

    def widths(self, embedding_dim: int) -> list[int]:
        """The widths of z_0 and of the hidden layers. Raises ConfigError if `embedding_dim` leaves none for a layer."""
        if self.network == "ngcf":
            return [3 * embedding_dim] + [self.hidden_dim or embedding_dim] * (self.hidden_layers or 2)
        f = self.multiplied(embedding_dim)
        require(0 < f < embedding_dim, f"network=he needs 0 < gmf_dim < embedding_dim, got {f} and {embedding_dim}")
        hidden = [(self.hidden_dim or embedding_dim - f) >> layer for layer in range(self.hidden_layers or 3)]
        problem = f"network=he halves hidden_dim in each layer: {hidden[0]} is too small for {len(hidden)} layers"
        require(hidden[-1] > 0, problem)
        return [2 * (embedding_dim - f), *hidden]

    def work(self, embedding_dim: int) -> int:
        """Multiply-adds per pair after the user and item parts of the first layer. Raises ConfigError as `widths` does."""
        widths = self.widths(embedding_dim)
        own = embedding_dim * widths[1] if self.network == "ngcf" else self.multiplied(embedding_dim)
        return own + sum(a * b for a, b in zip(widths[1:], [*widths[2:], 1], strict=True))


@model(
    "neumf",
    NeuMF,
    title="NeuMF: a network of a user's and an item's vector",
    source="He et al., WWW 2017",
    paper_loss="bce",
    noise_per_row=lambda p: "hidden_dropout" if p.hidden_dropout else "",
    work=lambda p, embedding_dim: p.work(embedding_dim),
)
class NeuMFModel(PairModel):
    plain = True

    def __init__(self, X: sp.csr_array, p: NeuMF, users: Tensor, items: Tensor, generator: torch.Generator):
        super().__init__(users, items)
        self.p, self.generator = p, generator
        embedding_dim = users.shape[1]
        self.f, widths = p.multiplied(embedding_dim), p.widths(embedding_dim)
        pairs = list(pairwise(widths))

        def uniform(limit: float, *shape: int) -> nn.Parameter:
            drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
            return nn.Parameter((limit * (2 * drawn - 1)).to(users))

        self.weights = nn.ParameterList([xavier(a, b, generator, users) for a, b in pairs])
        self.biases = nn.ParameterList([nn.Parameter(users.new_zeros(b)) for _, b in pairs])
        n = self.f + widths[-1]
        self.output = uniform(math.sqrt(3 / n if p.network == "he" else 6 / (n + 1)), n)
        self.bias = nn.Parameter(users.new_zeros(())) if p.network == "he" else None

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.users, self.items

    def pair_scores(self, users: Tensor, items: Tensor) -> Tensor:
        p, q, first = users[:, None, self.f :], items[..., self.f :], self.weights[0]
        width = p.shape[-1]
        # The parts of z_0 that several pairs share are multiplied once.
        z = p @ first[:width] + (q @ first[width : 2 * width] + self.biases[0])
        if self.p.network == "ngcf":
            z = z + (p * q) @ first[2 * width :]
        z = self.active(z)
        for W, b in zip(self.weights[1:], self.biases[1:], strict=True):
            z = self.active(z @ W + b)
        scores = z @ self.output[self.f :]
        if self.f:
            scores = scores + (users[:, None, : self.f] * items[..., : self.f]) @ self.output[: self.f]
        return scores if self.bias is None else scores + self.bias

    def active(self, z: Tensor) -> Tensor:
        """ReLU, and drop-out in training."""
        z = torch.relu(z)
        return dropout(z, self.p.hidden_dropout, self.generator) if self.training else z

    @torch.no_grad()
    def recommender(self, users: Tensor, items: Tensor) -> PairRecommender:
        first, f = self.weights[0], self.f
        width = users.shape[1] - f
        A = users[:, f:] @ first[:width] + self.biases[0]
        C = items[:, f:] @ first[width : 2 * width]
        if self.p.network == "he":
            U, V, direct = users[:, :f], items[:, :f], self.output[:f]
            mix = first.new_zeros(f, first.shape[1])
        else:
            U, V, direct = users, items, users.new_zeros(width)
            mix = first[2 * width :]
        arrays = (_array(each) for each in (A, C, U, V, mix, direct))
        layers = [(_array(W), _array(b)) for W, b in zip(self.weights[1:], self.biases[1:], strict=True)]
        bias = 0.0 if self.bias is None else float(self.bias)
        return PairRecommender.of(*arrays, layers, _array(self.output[f:]), bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy that further training does not change."""
    return np.array(tensor.detach().cpu().numpy(), order="C")
