"""The definition of an encoder: parameters, and a module that gives a vector for every user and item.

Every file of this folder is imported and registers its encoders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankbench.core.errors import require
from rankbench.core.registry import Registry
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import Recommender
from rankbench.models.propagation import Graph

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
    # The graph along which vectors are propagated by `propagate`, if there is one. Workers share its rows.
    graph: Graph | None = None
    # The weights c_l if `forward` is Σ_l c_l Â^l of `users` and `items`, and nothing else is learned.
    polynomial: Sequence[float] | None = None

    @property
    def width(self) -> int:
        """Dimension of the scored vectors."""
        return self.items.shape[1]

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return U (n_users, embedding_dim) and V (n_items, embedding_dim), which may contain noise in training mode."""
        raise NotImplementedError  # abstract: every encoder has its own

    def sides(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of users and those of items, from an array of all nodes, in which items follow users."""
        users, items = nodes.split([len(self.users), len(self.items)])
        return users, items

    def rows(self, nodes: np.ndarray) -> Tensor | None:
        """The vectors (m, d) of some nodes that are scored, ascending int64 (m,); items follow users. None: all are
        computed together, by `forward`, whose place it takes in a step.
        """
        return None

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1, after the generator was set to the state that belongs to the epoch. A
        resumed fit calls it first with the epoch that it continues with.
        """

    def row_vectors(self, users: Tensor, items: Tensor) -> Tensor | None:
        """The vectors (B, d) of the users of a batch, if they depend on the items of its rows; None: those of `forward()`.

        `users` and `items` (B,) int64 are the interactions of the batch. It is called once per batch, after `forward`, in
        training mode.
        """
        return None

    def on_direction(self, vectors: Tensor) -> Tensor:
        """What becomes of `row_vectors` (B, d) after they were divided by their lengths for the cosines, as by dropout."""
        return vectors

    def recommender(self, users: Tensor, items: Tensor) -> Recommender | None:
        """The model of the scored vectors `users` (n_users, d) and `items` (n_items, d), if it has another form than their
        products; None otherwise.
        """
        return None

    def own_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """A scalar that the encoder adds to the loss of a batch with `users` and `items` (B,) int64, or None.

        It is called once per batch, after `forward`, in training mode.
        """
        return None


def vectors_of(encoder: EmbeddingModel) -> tuple[Tensor, Tensor]:
    """Return the vectors that are scored. Raises ConfigError, which says what was returned, if they are not those of all users
    and items.
    """
    found: Any = encoder()
    if isinstance(found, tuple):
        right = len(found) == 2 and all(map(_are_vectors, found, (encoder.users, encoder.items)))
        what = ", ".join(f"{tuple(each.shape)}" if isinstance(each, Tensor) else type(each).__name__ for each in found)
    else:
        right, what = False, type(found).__name__
    expected = f"a vector of floating-point numbers for each of {len(encoder.users):,} users and {len(encoder.items):,} items"
    require(right, f"encoder {type(encoder).__name__}: returned {what}; expected {expected} (rankbench check FILE tests it)")
    return found


def _are_vectors(found: Any, own: Tensor) -> bool:
    kind = isinstance(found, Tensor) and found.is_floating_point() and found.layout is torch.strided
    return kind and found.ndim == 2 and len(found) == len(own) and found.device == own.device


class PairModel(EmbeddingModel):
    """An encoder that scores a pair by a function of its two vectors, which is no inner product, and has parameters besides."""

    def pair_scores(self, users: Tensor, items: Tensor) -> Tensor:
        """The scores (B, n) of users (B, embedding_dim), each with n items (B, n, embedding_dim), or (1, n, embedding_dim) if
        all have the same.
        """
        raise NotImplementedError  # abstract

    def recommender(self, users: Tensor, items: Tensor) -> PairRecommender:
        """The model of the vectors users (n_users, embedding_dim) and items (n_items, embedding_dim)."""
        raise NotImplementedError  # abstract


@dataclass(frozen=True)
class Encoder:
    """A registered encoder. `build(X, p, users, items, generator)` creates the module.

    X (n_users, n_items), 0/1 CSR, are the training interactions, `users` and `items` the initial vectors, and `generator` draws
    noise in training. Two functions serve the estimates of time and memory before a run: `layers(p)` is the number of times
    that a pass propagates vectors along the interactions, or the number of LightGCN's layers that take as long, and
    `per_edge(p)` how many numbers per interaction are kept: weights that a pass needs for its gradient, and their index.

    `work(p, embedding_dim)` is the number of multiply-adds that the score of a pair takes if the module is a `PairModel`, and
    None for inner products; it raises ConfigError for parameters that do not fit.

    `per_row`: a batch has a vector per interaction (`row_vectors`), so that the rows of a user cannot share sums over the
    catalogue. `noise_per_row(p)`: name of the parameter by which numbers are drawn for each row of a batch in turn, which
    several workers cannot do together; empty if none are. `folds(p)`: whether its models score users who were not fitted
    (`recommender`). `short_rows`: whether precision=bfloat16 is for the rows that its nodes read from their neighbours, as in
    steps by its `polynomial`. `paper_loss`: name of the loss that its paper trains it with, by which a leaderboard enters it;
    empty if there is none.
    """

    name: str
    params: type
    build: Callable[[sp.csr_array, Any, Tensor, Tensor, torch.Generator], EmbeddingModel]
    title: str
    source: str
    layers: Callable[[Any], int] = lambda p: 0
    per_row: bool = False
    noise_per_row: Callable[[Any], str] = lambda p: ""
    folds: Callable[[Any], bool] = lambda p: False
    per_edge: Callable[[Any], int] = lambda p: 0
    work: Callable[[Any, int], int] | None = None
    short_rows: bool = False
    paper_loss: str = ""


def model(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated class, or a function that makes a module, as `build` of an encoder."""
    return MODELS.decorator(name, lambda build: Encoder(name, params, build, **about))


def registered() -> Registry[Encoder]:
    """The registry of encoders, after importing every file of this folder."""
    return MODELS.filled_from("rankbench.models")
