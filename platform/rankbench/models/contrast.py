"""InfoNCE between two views of nodes, against all nodes of a kind, without an array of all products.

    ℓ(v) = log Σ_w exp(c(z_v, y_w)/τ) − c(z_v, y_v)/τ,    c the cosine, w over all rows of y, v among them

Cosines are at most 1, so exp((c − 1)/τ) needs no largest value first. On the CPU, the compiled kernel of the losses over the
whole catalogue computes the sums and their gradients; elsewhere PyTorch computes the products in parts, twice.
"""

from __future__ import annotations

from torch import Tensor

from rankbench.kernels.catalogue_sum import catalogue_sum
from rankbench.kernels.rows import take_rows, unit_rows
from rankbench.kernels.score_tiles import EXP


def contrast(first: Tensor, second: Tensor, ids: Tensor, tau: float) -> Tensor:
    """ℓ of the nodes with indices `ids` (m,) int64, (m,), for two views (n, d). Differentiable once."""
    z, y = unit_rows(take_rows(first, ids)), unit_rows(second)
    sums = catalogue_sum(z, y, z.new_full((len(z),), 1 / tau), EXP, 1 / tau)
    return sums.log() + (1 - (z * take_rows(y, ids)).sum(dim=1)) / tau
