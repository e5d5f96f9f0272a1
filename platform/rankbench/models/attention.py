"""Attention over the edges that arrive at a node: a softmax of scores that two numbers per node give.

    z_e = t_h + s_j,    α_e = exp(LeakyReLU(z_e)) / Σ_{e' into h} exp(LeakyReLU(z_e')),    e = (h ← j)
    ∂z_e = LeakyReLU'(z_e) · α_e (∂α_e − Σ_{e' into h} α_e' ∂α_e')

(Veličković et al., ICLR 2018, Eq. 3.) Two passes over the edges of a row read two numbers of each end and no vector. One thread
computes a row, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import leaky_relu

from rankbench.core.devices import compiled
from rankbench.models.edges import Edges, segment_sums, sums_per_node

SLOPE = 0.2  # of LeakyReLU below 0, as in the paper


def attention(edges: Edges, at_head: Tensor, at_tail: Tensor) -> Tensor:
    """Compute α (nnz, K) from t = `at_head` and s = `at_tail`, (n_nodes, K) of one floating dtype and device.

    The weights of the edges that arrive at a node have the sum 1. Differentiable once, with respect to both.
    """
    return _Attention.apply(edges, at_head.contiguous(), at_tail.contiguous())


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges: Edges, at_head: Tensor, at_tail: Tensor) -> Tensor:
        if compiled(at_head.device):
            alpha, rows = at_head.new_empty(edges.nnz, at_head.shape[1]), edges.heads
            rows.each(_softmax, rows.indptr, rows.ends, SLOPE, at_head.numpy(), at_tail.numpy(), alpha.numpy())
        else:
            e = edges.on(at_head.device)
            score = leaky_relu(at_head[e.head] + at_tail[e.tail], SLOPE)
            largest = torch.segment_reduce(score, "max", offsets=e.indptr, axis=0)
            share = (score - largest[e.head]).exp()
            alpha = share / segment_sums(share, e.indptr)[e.head]
        ctx.edges = edges
        ctx.save_for_backward(at_head, at_tail, alpha)
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        at_head, at_tail, alpha = ctx.saved_tensors
        edges, grad = ctx.edges, grad.contiguous()
        if compiled(grad.device):
            dz, rows = torch.empty_like(alpha), edges.heads
            arrays = [tensor.numpy() for tensor in (at_head, at_tail, alpha, grad, dz)]
            rows.each(_softmax_back, rows.indptr, rows.ends, SLOPE, *arrays)
        else:
            e = edges.on(grad.device)
            product = alpha * grad
            dz = product - alpha * segment_sums(product, e.indptr)[e.head]
            dz = torch.where(at_head[e.head] + at_tail[e.tail] > 0, dz, SLOPE * dz)
        return None, sums_per_node(edges, dz), sums_per_node(edges, dz, tails=True)


# As in edges.py, a NaN must reach the trainer.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _softmax(begin, end, indptr, ends, slope, at_head, at_tail, alpha):
    slope, zero = alpha.dtype.type(slope), alpha.dtype.type(0)
    for row in range(begin, end):
        first, stop = indptr[row], indptr[row + 1]
        for k in range(alpha.shape[1]):
            largest = alpha.dtype.type(-np.inf)
            for e in range(first, stop):
                z = at_head[row, k] + at_tail[ends[e], k]
                z = z if z > zero else slope * z
                alpha[e, k] = z
                largest = max(largest, z)
            total = zero
            for e in range(first, stop):
                share = np.exp(alpha[e, k] - largest)
                alpha[e, k] = share
                total += share
            for e in range(first, stop):
                alpha[e, k] /= total


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _softmax_back(begin, end, indptr, ends, slope, at_head, at_tail, alpha, grad, dz):
    slope, zero = alpha.dtype.type(slope), alpha.dtype.type(0)
    for row in range(begin, end):
        first, stop = indptr[row], indptr[row + 1]
        for k in range(alpha.shape[1]):
            mean = zero
            for e in range(first, stop):
                mean += alpha[e, k] * grad[e, k]
            for e in range(first, stop):
                given = alpha[e, k] * (grad[e, k] - mean)
                dz[e, k] = given if at_head[row, k] + at_tail[ends[e], k] > zero else slope * given
