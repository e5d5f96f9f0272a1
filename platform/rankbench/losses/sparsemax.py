"""Sparsemax loss over all items (Martins and Astudillo, ICML 2016).

    ℓ(u, i) = −o_ui + ½ Σ_{j in S} (o_uj² − θ²) + ½ = −o_ui + max_p (pᵀo_u − ½‖p‖²) + ½

p ranges over the distributions on items; the best one is sparsemax(o_u) = [o_u − θ]₊, S its support. Items outside S get no
gradient: their p is 0.
paper o_ui → s.pos (B,), dot products;  o_u → s.catalogue.scores() (B, n_items), which have to exist at once to be sorted
Differs from the paper that uses it for recommendation (Pu et al., ICML 2024), which prints it with its sign turned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class Sparsemax:
    """No parameters."""


@torch.no_grad()
def sparsemax_of(z: Tensor) -> Tensor:
    """The distribution nearest to each row of `z` (B, N), in squared distance. Precise where the greatest score is near 0."""
    ordered = z.sort(dim=1, descending=True).values
    sums = ordered.cumsum(dim=1)
    k = torch.arange(1, z.shape[1] + 1, dtype=z.dtype, device=z.device)
    size = (1 + k * ordered > sums).sum(dim=1, keepdim=True)
    theta = (sums.gather(1, size - 1) - 1) / size
    return (z - theta).clamp(min=0)


@loss(
    "sparsemax",
    Sparsemax,
    similarity="dot",
    sampler=None,
    needs=("catalogue",),
    title="Sparsemax loss over all items",
    source="Martins and Astudillo, ICML 2016",
)
def sparsemax(s: Scores, p: Sparsemax) -> Tensor:
    o = s.catalogue.scores()
    # The loss does not change by a shift; below their maximum, the scores in S lie within 1, and so do their sums.
    top = o.amax(dim=1, keepdim=True).detach()
    z = o - top
    best = sparsemax_of(z)
    # At the maximum over p the gradient through p vanishes.
    return top[:, 0] - s.pos + (best * (z - best / 2)).sum(dim=1) + 0.5
