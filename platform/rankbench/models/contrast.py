"""InfoNCE between two views of nodes, against all nodes of a kind, without an array of all products.

    ℓ(v) = log Σ_w exp(c(z_v, y_w)/τ) − c(z_v, y_v)/τ,    c the cosine, w over all rows of y, v among them

Against a sample of m nodes, the sum over the n − 1 nodes w ≠ v is that over the sample's, times (n − 1)/m, which has the same
expectation. Cosines are at most 1, so exp((c − 1)/τ) needs no largest value first. On the CPU, the compiled kernel of the
catalogue losses computes the sums and their gradients; elsewhere PyTorch computes the products in parts, twice.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankbench.kernels.catalogue_sum import catalogue_sum
from rankbench.kernels.rows import take_rows, unit_rows
from rankbench.kernels.score_tiles import EXP


def contrast(first: Tensor, second: Tensor, ids: Tensor, tau: float, among: Tensor | None = None) -> Tensor:
    """ℓ of the nodes with indices `ids` (m,) int64, (m,), for two views (n, d). Differentiable once.

    `among`, ascending int64, is a sample of the nodes that they are compared with. Default: all.
    """
    z, own = unit_rows(take_rows(first, ids)), unit_rows(take_rows(second, ids))
    shift = z.new_full((len(z),), 1 / tau)
    cosine = (z * own).sum(dim=1)
    if among is None:
        sums = catalogue_sum(z, unit_rows(second), shift, EXP, 1 / tau)
    else:
        place = np.searchsorted(among.cpu().numpy(), ids.cpu().numpy())
        drawn = np.append(among.cpu().numpy(), -1)[place] == ids.cpu().numpy()
        left_out = np.append(0, np.cumsum(drawn)), place[drawn]
        others = catalogue_sum(z, unit_rows(take_rows(second, among)), shift, EXP, 1 / tau, left_out=left_out)
        counted = np.maximum(len(among) - drawn, 1)
        sums = ((cosine - 1) / tau).exp() + others * z.new_tensor((len(second) - 1) / counted)
    return sums.log() + (1 - cosine) / tau
