"""The share of each intent in an edge, and the degree of each node under each intent: the softmax of DGCF's routing.

    P_ek = exp(S_ek) / Σ_k' exp(S_ek'),    D_hk = Σ_{e into h} P_ek
    ∂S_ek = P_ek (g_ek − Σ_k' P_ek' g_ek'),    g_ek = ∂P_ek + ∂D_hk

(Wang et al., SIGIR 2020.) One pass over the edges computes both; one thread computes a row, so the bits do not
depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.models.edges import Edges, segment_sums


def intent_shares(edges: Edges, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Compute P (nnz, K) and D (n_nodes, K) from S = `logits` (nnz, K), of a floating dtype. Differentiable once."""
    return _IntentShares.apply(edges, logits.contiguous())


class _IntentShares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges: Edges, logits: Tensor) -> tuple[Tensor, Tensor]:
        if compiled(logits.device):
            shares, degrees = torch.empty_like(logits), logits.new_empty(edges.n_nodes, logits.shape[1])
            edges.heads.each(_shares, edges.heads.indptr, logits.numpy(), shares.numpy(), degrees.numpy())
        else:
            shares = logits.softmax(dim=1)
            degrees = segment_sums(shares, edges.on(logits.device).indptr)
        ctx.edges = edges
        ctx.save_for_backward(shares)
        return shares, degrees

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, of_degrees: Tensor):
        (shares,), edges = ctx.saved_tensors, ctx.edges
        if compiled(grad.device):
            out, arrays = torch.empty_like(shares), (shares, grad.contiguous(), of_degrees.contiguous())
            edges.heads.each(_shares_back, edges.heads.indptr, *(tensor.numpy() for tensor in arrays), out.numpy())
            return None, out
        product = shares * (grad + of_degrees[edges.on(grad.device).head])
        return None, product - shares * product.sum(dim=1, keepdim=True)


# Of the fast-math rules only `contract` is used: others let the compiler drop a NaN, which must reach the trainer.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _shares(begin, end, indptr, logits, shares, degrees):
    n_intents = logits.shape[1]
    for row in range(begin, end):
        degrees[row] = 0
        for e in range(indptr[row], indptr[row + 1]):
            largest = logits[e, 0]
            for k in range(1, n_intents):
                largest = max(largest, logits[e, k])
            total = logits.dtype.type(0)
            for k in range(n_intents):
                shares[e, k] = np.exp(logits[e, k] - largest)
                total += shares[e, k]
            for k in range(n_intents):
                shares[e, k] /= total
                degrees[row, k] += shares[e, k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _shares_back(begin, end, indptr, shares, grad, of_degrees, out):
    n_intents = shares.shape[1]
    for row in range(begin, end):
        for e in range(indptr[row], indptr[row + 1]):
            mean = shares.dtype.type(0)
            for k in range(n_intents):
                mean += shares[e, k] * (grad[e, k] + of_degrees[row, k])
            for k in range(n_intents):
                out[e, k] = shares[e, k] * (grad[e, k] + of_degrees[row, k] - mean)
