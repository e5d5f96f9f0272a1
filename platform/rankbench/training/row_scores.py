"""The scores of a batch's rows with items: by products of vectors, by distances, or by a network of a user and an item."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.kernels.rows import gather_dot, gather_dots, pair_dot, ragged_dot, take_rows, unit_rows
from rankbench.losses.spec import Ragged, Similarity
from rankbench.models.spec import PairModel

COSINES = ("cosine", "half-cosine")


def unit(vectors: Tensor, similarity: Similarity) -> Tensor:
    """Vectors divided by their lengths for the cosines, unchanged otherwise."""
    return unit_rows(vectors) if similarity in COSINES else vectors


def scaled(users: Tensor, similarity: Similarity, temperature: float) -> Tensor:
    """User vectors whose products with item vectors are the scores."""
    factor = (0.5 if similarity == "half-cosine" else 1.0) / temperature
    return users if factor == 1 else users * factor


def largest_of(similarity: Similarity, temperature: float) -> float | None:
    """The largest size of a score, if the similarity has one."""
    return None if similarity in ("dot", "distance") else (0.5 if similarity == "half-cosine" else 1.0) / temperature


@dataclass
class Products:
    """Products of the vectors p (B, d) of the rows' users and V (r, d) of items, or minus their squared distances.

    `largest` is a bound of the scores' sizes, if one is known.
    """

    p: Tensor
    V: Tensor
    similarity: Similarity
    largest: float | None

    def __post_init__(self) -> None:
        """For distances, `lengths` are the squared lengths of p and V."""
        distances = self.similarity == "distance"
        self.lengths = (self.p.square().sum(dim=1), self.V.square().sum(dim=1)) if distances else None

    @property
    def by_kernels(self) -> bool:
        """Whether the kernels of sums over items compute these scores."""
        return self.similarity != "distance" and compiled(self.V.device)

    def of_batch(self, own: Tensor, drawn: Tensor | None, shared: bool) -> tuple[Tensor, Tensor | None]:
        """The scores (B,) of the rows with their own items, and the products (B, n) with the drawn ones, unless these are
        `shared`, whose sums may need no array. `own` (B,) and `drawn`, (B, n) or (1, n), are positions in V.
        """
        if drawn is None or shared:
            return self.single(torch.arange(len(self.p), device=self.p.device), own), None
        dots, own_dots = gather_dots(self.p, self.V, drawn, own)
        return self.similarities(own_dots[:, None], own[:, None])[:, 0], dots

    def table(self, positions: Tensor) -> Tensor:
        """The products (B, n) with the items at `positions` (B, n) in V."""
        return gather_dot(self.p, self.V, positions)

    def single(self, row: Tensor, positions: Tensor) -> Tensor:
        """The scores (T,) of row[t] with the item at positions[t] in V, for row and positions (T,) int64."""
        dots = pair_dot(self.p, self.V, row, positions)
        return dots if self.lengths is None else 2 * dots - self.lengths[0][row] - self.lengths[1][positions]

    def similarities(self, dots: Tensor, positions: Tensor) -> Tensor:
        """The scores from the products (B, n) with the items at `positions`: the products, or −|p − v|²."""
        return dots if self.lengths is None else 2 * dots - self.lengths[0][:, None] - self.lengths[1][positions]

    def between(self, some: Tensor, others: Tensor) -> Tensor:
        """The similarities (B,) of the items at two positions in V, (B,) int64 each."""
        q, other = self.V[some], self.V[others]
        return (q * other).sum(dim=1) if self.lengths is None else -(q - other).square().sum(dim=1)

    @torch.no_grad()
    def lists(self, row: Tensor, ids: Tensor, every_item: Tensor) -> Ragged:
        """The scores of row[t] with item ids[t] of `every_item` (n_items, d), for row and ids (T,) int64, without gradient."""
        values = ragged_dot(self.p, every_item, row, ids)
        return Ragged(values / every_item.norm(dim=1).clamp(min=1e-12)[ids] if self.similarity in COSINES else values, row)


class PairScores(Products):
    """Scores of pairs by the network of `encoder`, which draws its noise in the order of the calls."""

    by_kernels = False

    def __init__(self, encoder: PairModel, p: Tensor, V: Tensor):
        super().__init__(p, V, "dot", None)
        self.encoder = encoder

    def of_batch(self, own: Tensor, drawn: Tensor | None, shared: bool) -> tuple[Tensor, Tensor | None]:
        scores = None if drawn is None else self.table(drawn)
        return self.table(own[:, None])[:, 0], scores

    def table(self, positions: Tensor) -> Tensor:
        vectors = take_rows(self.V, positions.reshape(-1)).view(*positions.shape, -1)
        return self.encoder.pair_scores(self.p, vectors)

    def single(self, row: Tensor, positions: Tensor) -> Tensor:
        return self.encoder.pair_scores(take_rows(self.p, row), take_rows(self.V, positions)[:, None])[:, 0]

    @torch.no_grad()
    def lists(self, row: Tensor, ids: Tensor, every_item: Tensor) -> Ragged:
        return Ragged(self.encoder.pair_scores(self.p[row], every_item[ids][:, None])[:, 0], row)
