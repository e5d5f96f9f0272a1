"""The definition of a loss: parameters, and a function from the scores of a batch to one number per row.

Every file of this folder is imported and registers its losses. A loss gathers no vectors, owns no optimiser, samples nothing
and saves nothing. If it needs more than the scores of a positive and its negatives, it declares this in `needs`; what it
remembers between batches is a `LossState`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankbench.core.errors import ConfigError
from rankbench.core.lazy import Lazy
from rankbench.core.params import Params
from rankbench.core.registry import Registry
from rankbench.losses.others import DrawnItems, Others, OwnItems, ScoreTable

LOSSES: Registry[Loss] = Registry("loss")

Similarity = Literal["dot", "cosine", "half-cosine", "distance"]
Need = Literal["extra_positives", "all_positives", "catalogue", "rivals", "user_vectors"]


@dataclass(frozen=True)
class NoParams(Params):
    """Those of a loss without parameters."""


class Ragged(NamedTuple):
    """Lists of unequal length, one per row of the batch: `values` (T,), and the row of each value, `row` (T,) int64."""

    values: Tensor
    row: Tensor


@dataclass(frozen=True)
class Scores:
    """The scores of a batch of B rows, each an interaction (user, item), by the similarity that the loss declares.

    Scores are floating-point: float32 in training, float64 where gradients are checked. Indices are int64. The fields from
    `user_vectors` on are set only if the loss needs them.
    """

    #: (B,): the scores of the rows' items.
    pos: Tensor
    #: (B, n): the scores of n sampled items, shared by all rows or drawn per row.
    neg: Lazy[Tensor] = Lazy()
    #: The number of items of the catalogue.
    n_items: int
    #: (B,): the number of training items of each row's user.
    n_interactions: Lazy[Tensor] = Lazy()
    #: (B,): the users' indices.
    users: Tensor
    #: (B,): the items' indices.
    items: Tensor
    #: (B, n), or (1, n) if rows share them: the indices of the negatives.
    neg_items: Lazy[Tensor | None] = Lazy(None)
    #: (B, n) or (1, n): log probabilities under the distribution that the negatives were drawn from; constants.
    logq: Lazy[Tensor | None] = Lazy(None)
    #: (B,): the same of the rows' items.
    logq_pos: Lazy[Tensor | None] = Lazy(None)
    #: Whether that distribution has the user's own items, too.
    own_drawn: bool = False
    #: (B, embedding_dim): the vectors of the rows' users from the encoder.
    user_vectors: Tensor | None = None
    #: (B, m): scores of m items drawn with replacement from the user's own, where m is the loss's parameter `n_positives`.
    extra_positives: Tensor | None = None
    #: Scores of all the user's own items, without gradient.
    all_positives: Ragged | None = None
    #: Scores of every item.
    catalogue: Others | None = None
    #: The items that a positive is compared with, if `neg` is not read as it is: with objective=catalogue, all items or all but
    #: the user's own.
    other_items: Others | None = None
    #: The scores of all of the user's own items, with gradient.
    own_items: OwnItems | None = None
    #: `rival(k)`: the similarity of row b's item and its k[b]-th negative, (B,), for k (B,).
    rival: Callable[[Tensor], Tensor] | None = None

    @property
    def others(self) -> Others:
        """The items that each row's positive is compared with: those of the catalogue, or the sampled negatives."""
        return self._table() if self.other_items is None else self.other_items

    @property
    def sampled(self) -> ScoreTable:
        """The sampled negatives."""
        return self.other_items if isinstance(self.other_items, ScoreTable) else self._table()

    def _table(self) -> ScoreTable:
        return ScoreTable(lambda: self.neg, ids=lambda: self.neg_items)

    @property
    def own(self) -> OwnItems | DrawnItems:
        """All of the user's own items if they are given, else the drawn ones."""
        return DrawnItems(self.extra_positives) if self.own_items is None else self.own_items


class Sizes(NamedTuple):
    """The numbers of users and items, and the dimension of the vectors."""

    n_users: int
    n_items: int
    embedding_dim: int


class LossState(nn.Module):
    """What a loss remembers between batches, such as thresholds, margins or an adversary; trained and saved with the model.

    Every parameter and buffer is part of a checkpoint. Weight decay does not apply to them.
    """

    #: Names of the buffers (n_users, ...) whose row u changes only in batches of user u: of several workers, only the one with
    #: these batches knows it.
    of_users: tuple[str, ...] = ()
    #: Whether this epoch trains the state alone: the model rests, with its penalty and its encoder's own loss.
    alone: bool = False

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Parameter groups for the state's own Adam optimiser; `learning_rate` is that of the model."""
        return [{"params": list(self.parameters()), "lr": learning_rate}]

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1. A resumed fit calls it first with the epoch that it continues with."""

    def own_loss(self, s: Scores) -> Tensor | None:
        """A scalar that is added to the batch's loss and trains only the state (from detached scores), or None.

        It is a mean over the rows, since the scores may be a worker's part of the batch.
        """
        return None

    def project(self) -> None:
        """Called after every step: project parameters back into their range."""


def ascending(x: Tensor) -> Tensor:
    """The value of x with its gradient negated, so that descent on the loss ascends in x."""
    return 2 * x.detach() - x


class Twin(NamedTuple):
    """A loss that equals `scale` times the loss identified by `name` and `params`."""

    name: str
    params: tuple
    scale: float = 1.0


@dataclass(frozen=True)
class Loss:
    """A registered loss: what `loss` takes beside the function."""

    name: str
    #: A dataclass of the parameters.
    params: type
    #: `function(s, p)`, or `function(s, p, state)` if it has a state, gives one number per row, (B,); the trainer takes their
    #: mean.
    function: Callable[..., Tensor]
    #: What the scores are: dot products, cosines, half cosines, or minus squared distances.
    similarity: Similarity
    title: str
    #: The papers, such as "Wu et al., TOIS 2024, Eq. 8; Yang et al., KDD 2025".
    source: str
    #: The groups of losses that it belongs to (`fitting/families.py`).
    families: tuple[str, ...] = ()
    #: What it reads of `Scores` beside positives and negatives.
    needs: frozenset[Need] = frozenset()
    #: The distribution of negatives in the loss's papers: uniform over all items, or over the items that the user has not
    #: interacted with; None if the loss samples no negatives.
    sampler: Literal["uniform-all", "uniform-other"] | None = "uniform-other"
    #: Whether vectors are kept in the ball of radius 1.
    unit_ball: bool = False
    #: `state(p, sizes, generator)` creates the state.
    state: Callable[[Any, Sizes, torch.Generator], LossState] | None = field(default=None, repr=False)
    #: `twin(p)` is the loss that this one is equivalent to at parameters p, or None: losses with equal twins train the same
    #: model.
    twin: Callable[[Any], Twin | None] = lambda p: None
    #: `unused(p, objective)`: the names of parameters that a fit with parameters p does not read because of its objective.
    unused: Callable[[Any, str], Collection[str]] = lambda p, objective: ()
    #: Number of tables of the model's size that the state learns, for estimates before a run.
    tables: int = 0
    #: The time of a fit relative to most losses with the same `needs`, for estimates before a run.
    pace: float = 1.0
    #: Whether the loss calls `catalogue.of_all`, whose (B, n_items) arrays autograd keeps, for estimates before a run.
    whole_catalogue: bool = False
    #: Whether the loss calls `catalogue.of_all` or `catalogue.logsumexp`, whose products precision=bfloat16 is for.
    by_products: bool = False
    #: Whether the loss reads negatives only through `Scores.others` and `Scores.own`, so that it can be computed on the whole
    #: catalogue (objective=catalogue).
    over_catalogue: bool = False
    #: The reason why the loss has no meaning with another similarity; empty if it has.
    only_because: str = ""
    #: The reason why the user's own items must be among those that a positive is compared with; empty if they need not.
    among_all: str = ""
    #: The reason why sampled items must be drawn from all with equal probability; empty if they need not.
    only_uniform: str = ""
    #: The reason why the gradient is not the derivative of the value, such as a part that is held constant or an adversary that
    #: ascends; empty if it is the derivative.
    gradient_differs: str = ""


class ReturnedError(ConfigError):
    """A loss has returned something else than a number for each row."""


def row_losses(loss: Loss, s: Scores, p: Any, state: LossState | None = None) -> Tensor:
    """The loss of each row, (B,). Raises ReturnedError, which says what was returned, if it is none."""
    rows: Any = loss.function(s, p, state) if loss.state else loss.function(s, p)
    if isinstance(rows, Tensor):
        wanted = torch.is_grad_enabled() and s.pos.requires_grad
        same = rows.shape == s.pos.shape and rows.device == s.pos.device and rows.layout is torch.strided
        right = rows.is_floating_point() and same and (rows.requires_grad or not wanted)
        gradient = "" if rows.requires_grad else " without a gradient"
        found = f"a tensor of shape {tuple(rows.shape)} and type {str(rows.dtype).removeprefix('torch.')}{gradient}"
    else:
        right, found = False, "None" if rows is None else f"the type {type(rows).__name__}"
    expected = f"expected a tensor of {len(s.pos):,} floating-point numbers, one for each row, computed from the scores"
    if not right:
        raise ReturnedError(f"loss {loss.name}: returned {found}; {expected} (rankbench check FILE tests it)")
    return rows


def loss(name: str, params: type = NoParams, *, needs: tuple[Need, ...] = (), **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as a loss. `about` holds further fields of `Loss`."""
    if set(needs) - {"rivals", "user_vectors"} and about["similarity"] in ("distance", "half-cosine"):
        raise ValueError(f"{name}: {', '.join(needs)} are not available for the similarity {about['similarity']}")
    return LOSSES.decorator(name, lambda function: Loss(name, params, function, needs=frozenset(needs), **about))


def registered() -> Registry[Loss]:
    """The registry of losses, after importing every file of this folder."""
    return LOSSES.filled_from("rankbench.losses")
