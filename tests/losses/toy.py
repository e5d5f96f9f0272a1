"""The worked examples of the losses: data A, one user's logits; B, one row of cosines; C, one user's cosines; and states."""

from collections.abc import Callable
from typing import Any

import torch

from rankbench.losses.others import ScoreTable
from rankbench.losses.spec import LossState, Ragged, Scores, Sizes

A = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -0.5], dtype=torch.float64)
C = torch.tensor([0.7, 0.5, 0.3, 0.1, -0.2, -0.6], dtype=torch.float64)
POSITIVES = [0, 2]  # of A and of C


def row_b(**changes) -> Scores:
    """B: one row, its positive 0.6, four negatives."""
    about = {
        "pos": tensor([0.6]),
        "neg": tensor([[0.5, 0.1, -0.3, -0.8]]),
        "n_items": 10,
        "n_interactions": tensor([1.0]),
        "users": torch.tensor([0]),
        "items": torch.tensor([0]),
        "neg_items": torch.tensor([[1, 2, 3, 4]]),
    }
    return Scores(**(about | changes))


def whole(scores: torch.Tensor, positives=POSITIVES, negatives: str = "all") -> Scores:
    """A user's row for each positive; its negatives are `all` items, or the `other` ones that are no positives."""
    n, n_rows = len(scores), len(positives)
    others = torch.tensor([j for j in range(n) if negatives == "all" or j not in positives])
    of = torch.tensor(positives)
    return Scores(
        pos=scores[of],
        neg=scores[others].expand(n_rows, -1),
        n_items=n,
        n_interactions=torch.full((n_rows,), float(n_rows), dtype=scores.dtype),
        users=torch.zeros(n_rows, dtype=torch.int64),
        items=of,
        neg_items=others.expand(n_rows, -1),
        all_positives=Ragged(scores[of].repeat(n_rows).detach(), torch.arange(n_rows).repeat_interleave(n_rows)),
        catalogue=ScoreTable(scores.expand(n_rows, -1)),
    )


def state_of(kind: Callable[..., LossState], p, **tables) -> Any:
    """The state of a loss with parameters `p`, for three users, ten items and vectors of two numbers, in float64. `tables` are
    values of its parameters and buffers by name, one for all entries or one for each; the others are as they start.
    """
    state = kind(p, Sizes(n_users=3, n_items=10, embedding_dim=2), torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for name, values in tables.items():
            getattr(state, name).copy_(torch.as_tensor(values, dtype=torch.float64))
    return state


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)
