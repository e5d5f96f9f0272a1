"""The `Scores` of a batch, computed from vectors: similarities with positives, negatives and what else a loss needs."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.kernels.rows import gather_dot, gather_dots, pair_dot, ragged_dot, take_rows, unit_rows
from rankbench.losses.others import OwnItems
from rankbench.losses.spec import Loss, Ragged, Scores, Similarity
from rankbench.models.spec import PairModel
from rankbench.training.batches import Batch, Rows
from rankbench.training.catalogue import ChunkedCatalogue, Precision
from rankbench.training.drawn_negatives import DrawnNegatives, similarities
from rankbench.training.pair_scores import PairScores
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
    device = users.vectors.device
    V, own_positions = unit(items.vectors, loss.similarity), items.positions(batch.items)
    # The vectors of users, and the row of each interaction among them.
    U, at = (users.vectors, users.positions(batch.users)) if row_vectors is None else (row_vectors, None)
    U = _scaled(U if at is None else unit(U, loss.similarity), loss.similarity, temperature)
    p = U if at is None else take_rows(U, at)
    lengths = (p.square().sum(dim=1), V.square().sum(dim=1)) if loss.similarity == "distance" else None
    pair_scores = None if pairs is None else PairScores(pairs, p, V)
    positions = None if batch.negatives is None else items.positions(batch.negatives.items)
    shared = positions is not None and len(positions) == 1 and len(p) > 1
    dots: Tensor | None = None
    if pair_scores:
        dots = None if positions is None else pair_scores(positions)
        own_dots = pair_scores(own_positions[:, None])[:, 0]
    elif positions is None or shared:
        own_dots = pair_dot(p, V, torch.arange(len(p), device=device), own_positions)
    else:
        dots, own_dots = gather_dots(p, V, positions, own_positions)
    pos = similarities(own_dots[:, None], own_positions[:, None], lengths)[:, 0]
    drawn = None
    if positions is not None:
        of = None if at is None else (U, users.positions(batch.users).cpu().numpy())
        largest = largest_of(loss.similarity, temperature)
        single = pair_scores.single if pair_scores else partial(pair_dot, p, V)
        drawn = DrawnNegatives(batch, items, V, p, pos, of, positions, dots, lengths, largest, precision, single)
    extra = pair_scores or partial(gather_dot, p, V)
    return Scores(
        pos=pos,
        neg=pos[:, None][:, :0] if drawn is None else (lambda: drawn.values),
        n_items=X.shape[1],
        n_interactions=torch.from_numpy(np.diff(X.indptr)[batch.users]).to(pos),
        users=torch.from_numpy(batch.users).to(device),
        items=torch.from_numpy(batch.items).to(device),
        neg_items=drawn and (lambda: drawn.ids),
        logq=drawn and (lambda: drawn.logq),
        logq_pos=drawn and torch.as_tensor(batch.negatives.logq_pos).to(pos),
        own_drawn=drawn is not None and batch.negatives.own,
        user_vectors=(p if at is None else users.vectors[at]) if "user_vectors" in loss.needs else None,
        extra_positives=None if batch.extra is None else extra(items.positions(batch.extra)),
        all_positives=None if own is None else _all_positives(loss.similarity, p, own, every_item, pair_scores),
        catalogue=_catalogue(U, V, None if at is None else users, batch.users, precision)
        if "catalogue" in loss.needs
        else None,
        other_items=drawn and drawn.table(),
        rival=drawn and drawn.rival,
    )


def _catalogue(U: Tensor, V: Tensor, users: Rows | None, of: np.ndarray, precision: Precision) -> ChunkedCatalogue:
    if users is None:  # a vector per row
        return ChunkedCatalogue(U, V, torch.arange(len(U), device=U.device), precision)
    ids, of = np.unique(of, return_inverse=True)
    return ChunkedCatalogue(take_rows(U, users.positions(ids)), V, torch.from_numpy(of).to(U.device), precision)


def catalogue_scores_of(
    loss: Loss, batch: Batch, users: Rows, items: Tensor, X: sp.csr_array, left_out: bool, temperature: float = 1.0
) -> Scores:
    """The scores of a batch that has all interactions of its users, who are compared with all `items` (n_items, d).

    With `left_out`, a user's own items are not among those that a positive is compared with.
    """
    device, ids = users.vectors.device, np.unique(batch.users)
    U, V = unit(users.vectors[users.positions(ids)], loss.similarity), unit(items, loss.similarity)
    U = _scaled(U, loss.similarity, temperature)
    of = torch.from_numpy(np.searchsorted(ids, batch.users)).to(device)
    own_positions = torch.from_numpy(batch.items).to(device)
    pos = pair_dot(U, V, of, own_positions)
    rows = X[ids]
    own = OwnItems(pos, of, of, len(ids))
    largest = largest_of(loss.similarity, temperature)
    others = UserCatalogue(U, V, of, own, rows.indptr, rows.indices, left_out, largest)
    return Scores(
        pos=pos,
        neg=pos[:, None][:, :0],
        n_items=X.shape[1],
        n_interactions=torch.from_numpy(np.diff(X.indptr)[batch.users]).to(pos),
        users=torch.from_numpy(batch.users).to(device),
        items=own_positions,
        user_vectors=users.vectors[users.positions(batch.users)] if "user_vectors" in loss.needs else None,
        catalogue=others if "catalogue" in loss.needs else None,
        other_items=others,
        own_items=own,
    )


def unit(vectors: Tensor, similarity: Similarity) -> Tensor:
    """Vectors divided by their lengths for the cosines, unchanged otherwise."""
    return unit_rows(vectors) if similarity in ("cosine", "half-cosine") else vectors


def _scaled(users: Tensor, similarity: Similarity, temperature: float) -> Tensor:
    """User vectors whose products with item vectors are the scores."""
    factor = (0.5 if similarity == "half-cosine" else 1.0) / temperature
    return users if factor == 1 else users * factor


def largest_of(similarity: Similarity, temperature: float) -> float | None:
    """The largest size of a score, if the similarity has one."""
    return None if similarity in ("dot", "distance") else (0.5 if similarity == "half-cosine" else 1.0) / temperature


@torch.no_grad()
def _all_positives(
    similarity: Similarity, p: Tensor, own: tuple[Tensor, Tensor], every_item: Tensor, pair_scores: PairScores | None
) -> Ragged:
    row, ids = (index.to(p.device) for index in own)
    if pair_scores:
        return pair_scores.ragged(row, ids, every_item)
    values = ragged_dot(p, every_item, row, ids)
    if similarity in ("cosine", "half-cosine"):
        values = values / every_item.norm(dim=1).clamp(min=1e-12)[ids]
    return Ragged(values, row)


def own_items(X: sp.csr_array, users: np.ndarray) -> tuple[Tensor, Tensor]:
    """All items of each of `users` (m,): the user's position in `users` and the item, (T,) int64 each."""
    rows = X[users]
    positions = np.repeat(np.arange(len(users)), np.diff(rows.indptr))
    return torch.from_numpy(positions), torch.from_numpy(rows.indices.astype(np.int64))
