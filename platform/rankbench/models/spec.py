"""The definition of an encoder: parameters, and a module that gives a vector for every user and item.

Every file of this folder is imported and registers its encoders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankbench.core.registry import Registry

MODELS: Registry[Encoder] = Registry("model")


class EmbeddingModel(nn.Module):
    """An encoder. Its parameters `users` (n_users, embedding_dim) and `items` (n_items, embedding_dim) are the learned vectors.

    `forward()` gives the vectors that are scored. For evaluation, call `model.eval()` and then `model()`.
    """

    def __init__(self, users: Tensor, items: Tensor):
        super().__init__()
        self.users, self.items = nn.Parameter(users), nn.Parameter(items)

    # Whether the scored vectors are the learned vectors themselves, so that a batch uses only its own rows.
    plain = False

    @property
    def width(self) -> int:
        """Dimension of the scored vectors."""
        return self.users.shape[1]

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return U (n_users, embedding_dim) and V (n_items, embedding_dim), which may contain noise in training mode."""
        raise NotImplementedError  # abstract: every encoder has its own

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """A scalar that the encoder adds to the loss of a batch with `users` and `items` (B,) int64, or None.

        It is called once per batch, after `forward`, in training mode.
        """
        return None


@dataclass(frozen=True)
class Encoder:
    """A registered encoder. `build(X, p, users, items, generator)` creates the module.

    X (n_users, n_items), 0/1 CSR, are the training interactions, `users` and `items` the initial vectors, and `generator` draws
    noise in training. Two functions serve the estimates of time and memory before a run: `layers(p)` is the number of times
    that a pass propagates vectors along the interactions, or the number of LightGCN's layers that take as long, and
    `per_edge(p)` how many numbers per interaction are kept: weights that a pass needs for its gradient, and their index.
    """

    name: str
    params: type
    build: Callable[[sp.csr_array, Any, Tensor, Tensor, torch.Generator], EmbeddingModel]
    title: str
    source: str
    layers: Callable[[Any], int] = lambda p: 0
    per_edge: Callable[[Any], int] = lambda p: 0


def model(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as `build` of an encoder."""
    return MODELS.decorator(name, lambda build: Encoder(name, params, build, **about))


def registered() -> Registry[Encoder]:
    """The registry of encoders, after importing every file of this folder."""
    return MODELS.filled_from("rankbench.models")
