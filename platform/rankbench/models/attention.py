"""Attention over the edges that arrive at a node: a softmax of scores that two numbers per node give.

    z_e = t_h + s_j,    α_e = exp(LeakyReLU(z_e)) / Σ_{e' into h} exp(LeakyReLU(z_e')),    e = (h ← j)
    ∂z_e = LeakyReLU'(z_e) · α_e (∂α_e − Σ_{e' into h} α_e' ∂α_e')

(Veličković et al., ICLR 2018, Eq. 3.) These are PyTorch operations, for devices that the loops of `models/gat_layer.py`
do not serve.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import leaky_relu

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
        e = edges.on(grad.device)
        product = alpha * grad
        dz = product - alpha * segment_sums(product, e.indptr)[e.head]
        dz = torch.where(at_head[e.head] + at_tail[e.tail] > 0, dz, SLOPE * dz)
        return None, sums_per_node(edges, dz), sums_per_node(edges, dz, tails=True)
