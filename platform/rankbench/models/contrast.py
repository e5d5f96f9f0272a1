"""InfoNCE between two views of nodes, against all nodes of a kind, without an array of all products.

    ℓ(v) = log Σ_w exp(c(z_v, y_w)/τ) − c(z_v, y_v)/τ,    c the cosine, w over all rows of y, v among them

Cosines are at most 1, so exp((c − 1)/τ) needs no largest value first. The products are computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

_AT_ONCE = 1 << 20  # products held at once, which fit into the cache


def contrast(first: Tensor, second: Tensor, ids: Tensor, tau: float) -> Tensor:
    """ℓ of the nodes with indices `ids` (m,) int64, (m,), for two views (n, d). Differentiable once."""
    z, y = normalize(first[ids], dim=1), normalize(second, dim=1)
    return _LogSumExp.apply(z, y, tau) - (z * y[ids]).sum(dim=1) / tau


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z: Tensor, y: Tensor, tau: float) -> Tensor:
        total = z.new_zeros(len(z))
        for part in _parts(z, y):
            total += _powers(z, y[part], tau).sum(dim=1)
        ctx.save_for_backward(z, y, total)
        ctx.tau = tau
        return total.log() + 1 / tau

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        z, y, total = ctx.saved_tensors
        weight = (grad / (total * ctx.tau))[:, None]
        dz, dy = torch.zeros_like(z), torch.empty_like(y)
        for part in _parts(z, y):
            share = _powers(z, y[part], ctx.tau).mul_(weight)
            dz.addmm_(share, y[part])
            torch.mm(share.T, z, out=dy[part])
        return dz, dy, None


def _powers(z: Tensor, y: Tensor, tau: float) -> Tensor:
    return (z @ y.T).sub_(1).div_(tau).exp_()


def _parts(z: Tensor, y: Tensor) -> Iterator[slice]:
    size = max(64, _AT_ONCE // max(1, len(z)))
    return (slice(start, start + size) for start in range(0, len(y), size))
