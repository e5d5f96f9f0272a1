"""Sparsemax loss over all items (Martins and Astudillo, ICML 2016).

    ℓ(u, i) = −o_ui + ½ Σ_{j in S} (o_uj² − θ²) + ½ = −o_ui + max_p (pᵀo_u − ½‖p‖²) + ½

p ranges over the distributions on items; the best one is sparsemax(o_u) = [o_u − θ]₊, S its support. Items outside S get no
gradient: their p is 0.
paper o_ui → s.pos (B,), dot products;  o_u → s.catalogue.scores() (B, n_items), which have to exist at once
Differs from the paper that uses it for recommendation (Pu et al., ICML 2024), which prints it with its sign turned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class Sparsemax:
    """No parameters."""


@torch.no_grad()
def sparsemax_of(z: Tensor) -> Tensor:
    """The distribution nearest to each row of `z` (B, N), in squared distance. Precise where the greatest score is near 0."""
    theta = torch.from_numpy(_thresholds(z.cpu().numpy())).to(z)
    return (z - theta[:, None]).clamp(min=0)


@numba.njit(parallel=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _thresholds(z):
    """θ (B,) with Σ_j [z_j − θ]₊ = 1 in each row, float64: Newton's method on a convex piecewise linear function, from below.

    From there it only rises, and ends at the root after a few passes (Michelot 1986); to sort the row would take far longer.
    """
    theta = np.empty(len(z))
    for i in numba.prange(len(z)):
        row = z[i]
        # At one below the greatest score the sum is 1 at least.
        here, members = np.float64(row.max()) - 1.0, 0
        while True:
            excess, count = 0.0, 0
            for j in range(len(row)):
                over = row[j] - here
                above = over > 0.0
                excess += over if above else 0.0
                count += above
            # With an item at the threshold itself rounding would take it in and out for ever: but the threshold only rises.
            rise = (excess - 1.0) / count if count else 0.0
            if count == members or not rise > 0.0:
                break
            members = count
            here += rise
        theta[i] = here
    return theta


@loss(
    "sparsemax",
    Sparsemax,
    similarity="dot",
    sampler=None,
    needs=("catalogue",),
    title="Sparsemax loss over all items",
    source="Martins and Astudillo, ICML 2016",
    pace=2.0,
    whole_catalogue=True,
)
def sparsemax(s: Scores, p: Sparsemax) -> Tensor:
    o = s.catalogue.scores()
    # The loss does not change by a shift; below their maximum, the scores in S lie within 1, and so do their sums.
    top = o.amax(dim=1, keepdim=True).detach()
    z = o - top
    best = sparsemax_of(z)
    # At the maximum over p the gradient through p vanishes.
    return top[:, 0] - s.pos + (best * (z - best / 2)).sum(dim=1) + 0.5
