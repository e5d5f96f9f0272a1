"""The `Scores` of a batch, computed from vectors: similarities with positives, negatives and what else a loss needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.kernels.neighbours import Precision
from rankbench.kernels.rows import pair_dot, take_rows
from rankbench.kernels.transfer import on_device
from rankbench.losses.others import OwnItems
from rankbench.losses.spec import Loss, Scores
from rankbench.models.spec import PairModel
from rankbench.training.batches import Batch, Rows
from rankbench.training.catalogue import ChunkedCatalogue
from rankbench.training.drawn_negatives import negatives_of
from rankbench.training.row_scores import PairScores, Products, largest_of, scaled, unit
from rankbench.training.user_catalogue import UserCatalogue


def scores_of(
    loss: Loss,
    batch: Batch,
    users: Rows,
    items: Rows,
    X: sp.csr_array,
    every_item: Tensor,
    own: tuple[Tensor, Tensor] | None = None,
    precision: Precision = "float32",
    temperature: float = 1.0,
    row_vectors: Tensor | None = None,
    pairs: PairModel | None = None,
) -> Scores:
    """Compute the scores that `loss` needs for a batch, by similarities of the vectors, or by `pairs` if it is given.

    X (n_users, n_items) are the training interactions, `own` are the `own_items` of the batch's users if the loss needs them,
    and `every_item` (n_items, d) is the table that these are read from without gradient. `row_vectors` (B, d) replace the
    vectors of the rows' users; for cosines, they are directions.
    """
    of_users, of_items = batch.on(items.vectors.device)
    V, own_positions = unit(items.vectors, loss.similarity), items.positions(of_items)
    # The vectors of users, and the row of each interaction among them.
    U, at = (users.vectors, users.positions(of_users)) if row_vectors is None else (row_vectors, None)
    U = scaled(U if at is None else unit(U, loss.similarity), loss.similarity, temperature)
    p = U if at is None else take_rows(U, at)
    if pairs is None:
        by = Products(p, V, loss.similarity, largest_of(loss.similarity, temperature))
    else:
        by = PairScores(pairs, p, V)
    positions = None if batch.negatives is None else items.positions(batch.negatives.items)
    pos, dots = by.of_batch(own_positions, positions, positions is not None and len(positions) == 1 and len(p) > 1)
    drawn = None
    if positions is not None:
        of = None if at is None else (U, at)
        drawn = negatives_of(batch, items, by, pos, of, positions, dots, precision)
    return Scores(
        pos=pos,
        neg=pos[:, None][:, :0] if drawn is None else (lambda: drawn.values),
        neg_items=drawn and (lambda: drawn.ids),
        logq=drawn and (lambda: drawn.logq),
        logq_pos=drawn and (lambda: on_device(batch.negatives.logq_pos, pos.device).to(pos)),
        own_drawn=drawn is not None and batch.negatives.own,
        user_vectors=(row_vectors if at is None else users.vectors[at]) if "user_vectors" in loss.needs else None,
        extra_positives=None if batch.extra is None else by.table(items.positions(batch.extra)),
        all_positives=None if own is None else by.lists(*own, every_item),
        catalogue=_catalogue(U, V, at, precision) if "catalogue" in loss.needs else None,
        other_items=drawn and drawn.sums(),
        rival=drawn and drawn.rival,
        **_about(batch, X, pos),
    )


def _about(batch: Batch, X: sp.csr_array, pos: Tensor) -> dict[str, Any]:
    """What the scores say of the rows themselves."""
    users, items = batch.on(pos.device)

    def counts() -> Tensor:
        return on_device(np.diff(X.indptr)[batch.users], pos.device).to(pos)

    return {"n_items": X.shape[1], "n_interactions": counts, "users": users, "items": items}


def _catalogue(U: Tensor, V: Tensor, at: Tensor | None, precision: Precision) -> ChunkedCatalogue:
    """All items; `at` (B,) are the rows' users in U, None if U has a vector per row."""
    if at is None:
        return ChunkedCatalogue(U, V, torch.arange(len(U), device=U.device), precision)
    positions, of = at.unique(return_inverse=True)
    return ChunkedCatalogue(take_rows(U, positions), V, of, precision)


def catalogue_scores_of(
    loss: Loss, batch: Batch, users: Rows, items: Tensor, X: sp.csr_array, left_out: bool, temperature: float = 1.0
) -> Scores:
    """The scores of a batch that has all interactions of its users, who are compared with all `items` (n_items, d).

    With `left_out`, a user's own items are not among those that a positive is compared with.
    """
    ids, of = np.unique(batch.users, return_inverse=True)
    U, V = unit(users.vectors[users.positions(ids)], loss.similarity), unit(items, loss.similarity)
    U = scaled(U, loss.similarity, temperature)
    row = on_device(of, U.device)
    pos = pair_dot(U, V, row, batch.on(U.device)[1])
    rows, own = X[ids], OwnItems(pos, row, row, len(ids))
    largest = largest_of(loss.similarity, temperature)
    others = UserCatalogue(U, V, row, own, rows.indptr, rows.indices, left_out, largest)
    return Scores(
        pos=pos,
        neg=pos[:, None][:, :0],
        user_vectors=users.vectors[users.positions(batch.on(U.device)[0])] if "user_vectors" in loss.needs else None,
        catalogue=others if "catalogue" in loss.needs else None,
        other_items=others,
        own_items=own,
        **_about(batch, X, pos),
    )


def own_items(X: sp.csr_array, users: np.ndarray) -> tuple[Tensor, Tensor]:
    """All items of each of `users` (m,): the user's position in `users` and the item, (T,) int64 each."""
    rows = X[users]
    positions = np.repeat(np.arange(len(users)), np.diff(rows.indptr))
    return torch.from_numpy(positions), torch.from_numpy(rows.indices.astype(np.int64))


class OwnItemsThere:
    """`own_items` of the rows of a batch, listed on a device that holds the interactions X (n_users, n_items)."""

    def __init__(self, X: sp.csr_array, device: torch.device):
        self.degree = np.diff(X.indptr)
        self.indptr, self.items = (on_device(array.astype(np.int64), device) for array in (X.indptr, X.indices))

    def of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        users, _ = batch.on(self.items.device)
        start, stop = self.indptr[users], self.indptr[users + 1]
        # The host knows how many items there are: it need not ask the device.
        n, each = int(self.degree[batch.users].sum()), torch.arange(len(users), device=users.device)
        row = each.repeat_interleave(stop - start, output_size=n)
        shift = stop - (stop - start).cumsum(0)  # from the place in this list to that in the list of all
        return row, self.items[torch.arange(n, device=users.device) + shift[row]]
