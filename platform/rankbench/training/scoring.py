"""The `Scores` of a batch, computed from vectors: similarities with positives, negatives and what else a loss needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.kernels.rows import gather_dot, gather_dots, pair_dot, ragged_dot, take_rows, unit_rows
from rankbench.losses.others import OwnItems
from rankbench.losses.spec import Loss, Ragged, Scores, Similarity
from rankbench.models.spec import PairModel
from rankbench.training.catalogue import ChunkedCatalogue, Precision, product
from rankbench.training.negatives import Negatives
from rankbench.training.pair_scores import PairScores
from rankbench.training.sampled_scores import SampledScores
from rankbench.training.user_catalogue import UserCatalogue

_MOSTLY = 0.9  # share of different users in a batch above which copying products costs more than computing them twice


@dataclass(frozen=True)
class Batch:
    """B interactions: `users` and `items` int64 (B,), `negatives` or None if the loss samples none, `extra` (B, m) or None.

    `at` (B,) int64 are the positions of the rows in the global batch, of which this is a worker's part; None if it is whole.
    """

    users: np.ndarray
    items: np.ndarray
    negatives: Negatives | None
    extra: np.ndarray | None
    in_batch: bool = False
    at: np.ndarray | None = None

    def part(self, at: np.ndarray) -> Batch:
        """The rows at positions `at` (m,) int64. Negatives that all rows share, or that are in the batch, stay whole."""
        negatives = self.negatives and self.negatives.of_rows(at, len(self.users))
        extra = None if self.extra is None else self.extra[at]
        return Batch(self.users[at], self.items[at], negatives, extra, self.in_batch, at)


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: `vectors` (r, d) belong to the sorted indices `ids` (r,) int64, or to all rows if None."""

    vectors: Tensor
    ids: np.ndarray | None

    @classmethod
    def of(cls, table: Tensor, ids: np.ndarray | None) -> Rows:
        """The rows with indices `ids`, or all rows if these are more than half of the table, which avoids a copy."""
        if ids is None or 2 * len(ids) > len(table):
            return cls(table, None)
        return cls(take_rows(table, torch.from_numpy(ids).to(table.device)), ids)

    def positions(self, ids: np.ndarray | Tensor) -> Tensor:
        """Positions in `vectors` of the rows with indices `ids`, all of which must be present."""
        if isinstance(ids, Tensor):
            if self.ids is None:
                return ids
            ids = ids.cpu().numpy()
        positions = ids if self.ids is None else np.searchsorted(self.ids, ids)
        return torch.from_numpy(np.ascontiguousarray(positions)).to(self.vectors.device)


def touched_items(batch: Batch, n_items: int, whole: bool) -> np.ndarray | None:
    """The sorted, unique items that a batch scores; None for all items, if the loss needs the `whole` catalogue."""
    if whole:
        return None
    lists = [batch.items]
    lists += [batch.negatives.items.reshape(-1)] if batch.negatives else []
    lists += [batch.extra.reshape(-1)] if batch.extra is not None else []
    touched = np.zeros(n_items, bool)
    for ids in lists:
        touched[ids] = True
    return np.flatnonzero(touched)


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
    length = V.square().sum(dim=1) if loss.similarity == "distance" else None
    user_length = p.square().sum(dim=1) if loss.similarity == "distance" else None

    def similarities(dots: Tensor, positions: Tensor) -> Tensor:
        """The similarities from dot products; `positions` are those of the items in V, of a shape that broadcasts."""
        return dots if length is None else 2 * dots - user_length[:, None] - length[positions]

    drawn = batch.negatives.items if batch.negatives is not None else None
    positions = None if drawn is None else items.positions(drawn)
    shared = drawn is not None and len(drawn) == 1 and len(p) > 1
    pair_scores = None if pairs is None else PairScores(pairs, p, V)
    if pair_scores:
        dots = None if positions is None else pair_scores(positions)
        own_dots = pair_scores(own_positions[:, None])[:, 0]
    elif drawn is None or shared:
        dots = None
        if drawn is not None:
            others = take_rows(V, positions[0])
            dots = product(p, others, precision) if at is None else _shared_dots(U, others, users, batch.users, precision)
        own_dots = pair_dot(p, V, torch.arange(len(p), device=device), own_positions)
    else:
        dots, own_dots = gather_dots(p, V, positions, own_positions)
    pos = similarities(own_dots[:, None], own_positions[:, None])[:, 0]
    neg, neg_ids, logq, logq_pos, rival = pos[:, None][:, :0], None, None, None, None
    if drawn is not None:
        neg = similarities(dots, positions)
        logq = torch.as_tensor(batch.negatives.logq).to(neg).expand(len(drawn) if not shared else 1, -1)
        neg_ids = drawn if isinstance(drawn, Tensor) else torch.from_numpy(drawn).to(device)
        if batch.in_batch:
            place = None if batch.at is None else torch.from_numpy(batch.at).to(device)
            neg, neg_ids = _without_own(neg, place), _without_own(neg_ids.expand(len(p), -1), place)
            logq = _without_own(logq.expand(len(p), -1), place)
        logq_pos = torch.as_tensor(batch.negatives.logq_pos).to(neg)
        logq = logq.expand(-1, neg.shape[1]).expand(neg.shape if len(logq) > 1 else (1, neg.shape[1]))

        def rival(k: Tensor) -> Tensor:
            chosen = neg_ids.expand(len(p), -1).gather(1, k[:, None])[:, 0]
            q, other = V[own_positions], V[items.positions(chosen)]
            return -(q - other).square().sum(dim=1) if length is not None else (q * other).sum(dim=1)

    extra = pair_scores or partial(gather_dot, p, V)
    return Scores(
        pos=pos,
        neg=neg,
        n_items=X.shape[1],
        n_interactions=torch.from_numpy(np.diff(X.indptr)[batch.users]).to(pos),
        users=torch.from_numpy(batch.users).to(device),
        items=torch.from_numpy(batch.items).to(device),
        neg_items=neg_ids,
        logq=logq,
        logq_pos=logq_pos,
        own_drawn=drawn is not None and batch.negatives.own,
        user_vectors=(p if at is None else users.vectors[at]) if "user_vectors" in loss.needs else None,
        extra_positives=None if batch.extra is None else extra(items.positions(batch.extra)),
        all_positives=None if own is None else _all_positives(loss.similarity, p, own, every_item, pair_scores),
        catalogue=_catalogue(U, V, None if at is None else users, batch.users, precision)
        if "catalogue" in loss.needs
        else None,
        other_items=None if drawn is None else SampledScores(neg),
        rival=rival,
        gather_dot=gather_dot,
    )


def _shared_dots(U: Tensor, V: Tensor, users: Rows, of: np.ndarray, precision: Precision) -> Tensor:
    """The products of the rows with items V that they share, (B, n). The product of a user in several rows is computed once."""
    ids, row = np.unique(of, return_inverse=True)
    if len(ids) > _MOSTLY * len(of):
        return product(take_rows(U, users.positions(of)), V, precision)
    dots = product(take_rows(U, users.positions(ids)), V, precision)
    return take_rows(dots, torch.from_numpy(row).to(U.device))


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
    largest = None if loss.similarity == "dot" else (0.5 if loss.similarity == "half-cosine" else 1.0) / temperature
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


def _without_own(square: Tensor, at: Tensor | None) -> Tensor:
    """(B, B) → (B, B − 1): the positive of a row is not its own negative. `at` (m,) are the positions of some of the rows."""
    if at is not None:
        others = torch.arange(square.shape[1] - 1, device=square.device).expand(len(at), -1)
        return square.gather(1, others + (others >= at[:, None]))
    n = len(square)
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


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
