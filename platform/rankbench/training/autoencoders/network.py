"""MultiVAE's network in PyTorch's operations, with gradients by autograd: for GPUs, and as the reference of `blocks.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from rankbench.fitting.checkpoints import part_of, prefixed
from rankbench.kernels.transfer import on_device
from rankbench.training.adam import DenseAdam

# Q1 (n_items, h), q1 (h,), Q2 (h, 2d), q2 (2d,), P1 (d, h), p1 (h,), P2 (n_items, h), p2 (n_items,), all of one dtype.
Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Batch:
    """The users of a step. `indptr` (B + 1,) and `items` (nnz,), int64, are their histories.

    `values` (nnz,) are the entries of the encoder's input x̃, 0 where dropout left an item out. `noise` (B, d) is ε, and `beta`
    the weight of the divergence. `values` and `noise` have the dtype of the weights.
    """

    indptr: np.ndarray
    items: np.ndarray
    values: np.ndarray
    noise: np.ndarray
    beta: float

    @classmethod
    def of(cls, rows: sp.csr_array, keep: np.ndarray, kept_share: float, noise: np.ndarray, beta: float) -> Batch:
        """The batch of histories `rows` (B, n_items), 0/1 CSR; `keep` (nnz,) says which entries dropout keeps.

        Kept entries are divided by `kept_share`, so that their sum has the mean of the sum without dropout.
        """
        counts = np.diff(rows.indptr)
        length = np.sqrt(np.maximum(counts, 1))
        values = np.where(keep, 1 / (kept_share * np.repeat(length, counts)), 0).astype(noise.dtype)
        return cls(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), values, noise, beta)

    @property
    def counts(self) -> np.ndarray:
        """The number of items of each user (B,)."""
        return np.diff(self.indptr)

    @property
    def users(self) -> np.ndarray:
        """The position in the batch of the user of each entry (nnz,)."""
        return np.repeat(np.arange(len(self.indptr) - 1), self.counts)


class Network:
    """The weights on `device`, with dense Adam. `p` has the parameters learning_rate, lam and precision."""

    def __init__(self, weights: Weights, p: Any, device: torch.device):
        self.device, self.precision = device, p.precision
        self.tensors = {name: torch.tensor(array, device=device).requires_grad_() for name, array in weights.items()}
        matrices, vectors = ([each for each in self.tensors.values() if each.ndim == ndim] for ndim in (2, 1))
        # The gradient of λ ‖W‖² is 2λW.
        decayed = {"params": matrices, "lr": p.learning_rate, "weight_decay": 2 * p.lam}
        self.adam = DenseAdam([decayed, {"params": vectors, "lr": p.learning_rate}])

    def loss(self, batch: Batch) -> Tensor:
        """The loss of each user (B,), without λ."""
        w = self.tensors
        arrays = batch.items, batch.values, batch.noise, batch.users, batch.indptr[:-1], batch.counts
        items, values, noise, users, offsets, counts = (on_device(each, self.device) for each in arrays)
        h = torch.tanh(embedding_bag(items, w["Q1"], offsets, mode="sum", per_sample_weights=values) + w["q1"])
        mean, log_variance = torch.chunk(h @ w["Q2"] + w["q2"], 2, dim=1)
        z = mean + noise * torch.exp(log_variance / 2)
        g = torch.tanh(z @ w["P1"] + w["p1"])
        kind = torch.bfloat16 if self.precision == "bfloat16" else g.dtype
        f = (g.to(kind) @ w["P2"].to(kind).T).to(g.dtype).add_(w["p2"])
        divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=1) / 2
        return _NegativeLogLikelihood.apply(f, users, items, counts.to(f)) + batch.beta * divergence

    def step(self, batch: Batch) -> Tensor:
        """Update all weights. Returns the sum of the users' losses, on the device: to read it would wait for the step."""
        loss = self.loss(batch)
        loss.mean().backward()
        self.adam.step(1.0)
        return loss.detach().sum(dtype=torch.float64)

    def weights(self) -> Weights:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        return prefixed({"weights": self.weights(), "adam": self.adam.arrays()})

    @torch.no_grad()
    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(torch.from_numpy(arrays[f"weights/{name}"]))
        self.adam.restore(part_of(arrays, "adam/"))


class _NegativeLogLikelihood(torch.autograd.Function):
    """−Σ_i x_ui log softmax(f_u)_i for each user. The memory of f (B, n_items) becomes that of its exponentials and then of its
    gradient, so that there is one such matrix at a time.
    """

    @staticmethod
    def forward(ctx: Any, f: Tensor, users: Tensor, items: Tensor, counts: Tensor) -> Tensor:
        own = torch.zeros_like(counts).index_add_(0, users, f[users, items])
        f = f.detach()
        most = f.max(dim=1).values
        totals = f.sub_(most[:, None]).exp_().sum(dim=1)
        ctx.exponentials, ctx.totals, ctx.index, ctx.counts = f, totals, (users, items), counts
        return counts * (totals.log() + most) - own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        slopes = ctx.exponentials.mul_((grad * ctx.counts / ctx.totals)[:, None])
        slopes[ctx.index] -= grad[ctx.index[0]]
        ctx.exponentials = None  # a second backward pass would find the gradient there
        return slopes, None, None, None
