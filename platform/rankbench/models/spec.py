"""What an encoder is: parameters, and a module that gives a vector for every user and item. A file registers by existing."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankbench.core.registry import Registry

MODELS: Registry[Encoder] = Registry("model")


class EmbeddingModel(nn.Module):
    """An encoder. Its parameters `users` (n_users, embedding_dim) and `items` (n_items, embedding_dim) are the vectors that
    are learnt; `forward()` gives the vectors that are scored. Evaluation is `model.eval(); model()`.
    """

    def __init__(self, users: Tensor, items: Tensor):
        super().__init__()
        self.users, self.items = nn.Parameter(users), nn.Parameter(items)

    # Whether the vectors that are scored are the learnt ones themselves, so that a batch touches its own rows alone.
    plain = False

    def forward(self) -> tuple[Tensor, Tensor]:
        """(U (n_users, embedding_dim), V (n_items, embedding_dim)); in training mode there may be noise in them."""
        raise NotImplementedError

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """A scalar that the encoder adds to a batch's loss, or None. `users`, `items` (B,) int64: those of the batch.

        Called after `forward`, in training mode, once a batch.
        """
        return None


@dataclass(frozen=True)
class Encoder:
    """`build(X, p, users, items, generator)` makes the module: X (n_users, n_items) 0/1 CSR of the training interactions;
    `users`, `items`: the vectors to start from; `generator`: for noise in training. `layers(p)`: how many times a pass sends
    vectors along the interactions, for the estimates of time and memory before a run.
    """

    name: str
    params: type
    build: Callable[[sp.csr_array, Any, Tensor, Tensor, torch.Generator], EmbeddingModel]
    title: str
    source: str
    layers: Callable[[Any], int] = lambda p: 0


def model(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as `build` of an encoder."""

    def add(build: Callable) -> Callable:
        MODELS.add(name, Encoder(name, params, build, **about))
        return build

    return add


def registered() -> Registry[Encoder]:
    """The registry, with every file of this room imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return MODELS
