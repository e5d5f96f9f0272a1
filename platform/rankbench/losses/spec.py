"""What a loss is: parameters, and a function from the scores of a batch to one number a row. A file registers by existing.

A loss gathers no vectors, owns no optimiser, samples nothing and saves nothing. What it wants beyond the scores of a positive
and of its negatives it declares in `needs`; what it remembers between batches is a `LossState`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rankbench.core.registry import Registry

LOSSES: Registry[Loss] = Registry("loss")

Similarity = Literal["dot", "cosine", "half-cosine", "distance"]
Need = Literal["extra_positives", "all_positives", "catalogue", "rivals"]


class Ragged(NamedTuple):
    """Lists of unequal length, one a row of the batch: `values` (T,), and `row` (T,) int64, the row each belongs to."""

    values: Tensor
    row: Tensor


class Catalogue(Protocol):
    """The scores of every item for every row, which need not exist all at once; gradients flow through each method."""

    def logsumexp(self) -> Tensor:
        """log Σ_j exp s_j, (B,)."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and mean square of a row's scores, (B,) each."""

    def scores(self) -> Tensor:
        """All of them, (B, n_items)."""


@dataclass(frozen=True)
class WholeCatalogue:
    """A catalogue of scores that do exist: `whole` (B, n_items)."""

    whole: Tensor

    def logsumexp(self) -> Tensor:
        return torch.logsumexp(self.whole, dim=1)

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.whole.mean(dim=1), self.whole.square().mean(dim=1)

    def scores(self) -> Tensor:
        return self.whole


@dataclass(frozen=True)
class Scores:
    """A batch of B rows, each an interaction (user, item), by the similarity that the loss declares.

    pos (B,); neg (B, n), scores of n sampled items, the same for all rows or each row's own. `users`, `items` (B,) int64;
    `neg_items` int64, (B, n), or (1, n) where rows share them. `n_interactions` (B,): items of the row's user in training;
    `n_items`: of the whole catalogue. `logq` (B, n) or (1, n) and `logq_pos` (B,): log probabilities of the proposal that
    drew the negatives, constants. `user_vectors`, `item_vectors` (B, embedding_dim): of the rows, as the encoder gave them.

    Only where a loss needs them: `extra_positives` (B, m), scores of m items drawn with replacement from the user's own
    (`m` is the loss's parameter `n_positives`); `all_positives`, all of the user's own, without gradient; `catalogue`, every
    item; `rival(k)`: the similarity of row b's item and its k[b]-th negative, (B,) from k (B,) int64.
    """

    pos: Tensor
    neg: Tensor
    n_items: int
    n_interactions: Tensor
    users: Tensor
    items: Tensor
    neg_items: Tensor | None = None
    logq: Tensor | None = None
    logq_pos: Tensor | None = None
    user_vectors: Tensor | None = None
    item_vectors: Tensor | None = None
    extra_positives: Tensor | None = None
    all_positives: Ragged | None = None
    catalogue: Catalogue | None = None
    rival: Callable[[Tensor], Tensor] | None = None


class Sizes(NamedTuple):
    n_users: int
    n_items: int
    embedding_dim: int


class LossState(nn.Module):
    """What a loss remembers: thresholds, margins, an adversary. It is trained beside the model and saved with it.

    Every parameter and buffer is part of a checkpoint. Weight decay never touches them.
    """

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Parameter groups of the state's own Adam; `learning_rate` is the model's."""
        return [{"params": list(self.parameters()), "lr": learning_rate}]

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1; a resumed fit calls it with the epoch it goes on with."""

    def own_loss(self, s: Scores) -> Tensor | None:
        """A scalar added to the batch's loss, through which only the state learns (scores detached), or None."""
        return None

    def project(self) -> None:
        """Called after every step: put parameters back into their range."""


class Twin(NamedTuple):
    """A loss as `scale` times the one that `name` and `params` say."""

    name: str
    params: tuple
    scale: float = 1.0


@dataclass(frozen=True)
class Loss:
    """`function(s, p)`, or `function(s, p, state)` for a loss with `state`: (B,), a number a row; the trainer takes the mean.

    `sampler`: the negatives its papers draw, uniform over all items or over those the user has not met; None: it samples
    none. `unit_ball`: vectors are kept in the ball of radius 1. `state(p, sizes, generator)` makes the state. `twin(p)`: which
    loss it is in other words, if any, at such parameters: losses with equal twins train to the same model.

    For the estimates of time and memory before a run: `pace`, the time that a fit takes relative to most losses with the same
    `needs`; `whole_catalogue`, whether it calls `catalogue.scores()`, whose (B, n_items) array autograd then keeps.
    """

    name: str
    params: type
    function: Callable[..., Tensor]
    similarity: Similarity
    title: str
    source: str
    needs: frozenset[Need] = frozenset()
    sampler: Literal["uniform-all", "uniform-other"] | None = "uniform-other"
    unit_ball: bool = False
    state: Callable[[Any, Sizes, torch.Generator], LossState] | None = field(default=None, repr=False)
    twin: Callable[[Any], Twin | None] = lambda p: None
    pace: float = 1.0
    whole_catalogue: bool = False


def loss(name: str, params: type, *, needs: tuple[Need, ...] = (), **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as a loss; `about` are the fields of Loss."""

    if set(needs) - {"rivals"} and about["similarity"] in ("distance", "half-cosine"):
        raise ValueError(f"{name}: {', '.join(needs)} are not given for the similarity {about['similarity']}")

    def add(function: Callable) -> Callable:
        LOSSES.add(name, Loss(name, params, function, needs=frozenset(needs), **about))
        return function

    return add


def registered() -> Registry[Loss]:
    """The registry, with every file of this room imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return LOSSES
