r"""Sparsemax loss over all items (Martins and Astudillo, ICML 2016).

$$\ell(u, i) = -o_{ui} + \tfrac12 \sum_{j \in S} (o_{uj}^2 - \theta^2) + \tfrac12
  = -o_{ui} + \max_p \bigl(p^\top o_u - \tfrac12 \lVert p \rVert^2\bigr) + \tfrac12$$

p ranges over the distributions on items; the maximum is at sparsemax$(o_u) = [o_u - \theta]_+$, whose support is S. Items
outside S get no gradient, because their p is 0.

paper $o_{ui}$ → `s.pos` (B,), dot products; $o_u$ → the scores of `s.catalogue` (B, n_items), held in memory at once
Differs from the paper that uses it for recommendation (Pu et al., ICML 2024), which prints it with the opposite sign.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankbench.core.compiler import numba
from rankbench.core.thread_pool import divided
from rankbench.losses.spec import NoParams, Scores, loss


@torch.no_grad()
def sparsemax_of(z: Tensor) -> Tensor:
    """The distribution nearest to each row of `z` (B, N) in squared distance; most accurate if the largest score is near 0."""
    theta = np.empty(len(z))
    divided(_thresholds, len(z), z.cpu().numpy(), theta)
    return (z - torch.from_numpy(theta).to(z)[:, None]).clamp(min=0)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _thresholds(z, theta, start, stop):
    """Solve Σ_j [z_j − θ]₊ = 1 for θ (B,), float64, by Newton's method on a convex piecewise linear function, from below.

    θ then only rises and reaches the root after a few passes (Michelot 1986), which is much faster than sorting the row.
    """
    for i in range(start, stop):
        row = z[i]
        # At the largest score minus 1, the sum is at least 1.
        level, members = np.float64(row.max()) - 1.0, 0
        while True:
            excess, count = 0.0, 0
            for j in range(len(row)):
                over = row[j] - level
                above = over > 0.0
                excess += over if above else 0.0
                count += above
            # Rounding could add and remove an item at the threshold itself for ever, so θ must rise strictly.
            rise = (excess - 1.0) / count if count else 0.0
            if count == members or not rise > 0.0:
                break
            members = count
            level += rise
        theta[i] = level


@loss(
    "sparsemax",
    similarity="dot",
    sampler=None,
    needs=("catalogue",),
    over_catalogue=True,
    families=("softmax",),
    title="Sparsemax loss over all items",
    source="Martins and Astudillo, ICML 2016",
    pace=2.0,
    whole_catalogue=True,
    by_products=True,
    among_all="the positive must be one of them",
)
def sparsemax(s: Scores, p: NoParams) -> Tensor:
    return s.catalogue.of_all(_largest) - s.pos + 0.5


def _largest(o: Tensor) -> Tensor:
    """max_p (pᵀo − ½‖p‖²) of each row of `o` (B, N)."""
    # A shift does not change the loss. Relative to their maximum, the scores in S lie within 1, which keeps them accurate.
    top = o.amax(dim=1, keepdim=True).detach()
    z = o - top
    best = sparsemax_of(z)
    # At the maximum over p the gradient through p is zero.
    return top[:, 0] + (best * (z - best / 2)).sum(dim=1)
