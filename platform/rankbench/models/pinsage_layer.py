"""A convolution of PinSage with its gradient, in loops over blocks of rows.

    M = ReLU(x Q + q),    n_h = Σ_{e = (h ← t)} α_e M_t,    P = x W₁ + n W₂ + w,    out = unit(ReLU(P)), or less

(Ying et al., KDD 2018, Algorithm 1.) M and n are kept for the gradient, which skips rows whose ∂out is 0. Products are NumPy's,
whose BLAS has one thread during a fit; sums over blocks are taken in their order, so the bits do not depend on the number of
threads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES
from rankbench.kernels.parallel import in_blocks, summed
from rankbench.kernels.some_rows import some_rows
from rankbench.models.edges import Edges, sum_at_heads, sum_of_some

_TINY = 1e-12  # the smallest length that a row is divided by


def pinsage_layer(
    edges: Edges,
    nodes: np.ndarray,
    shares: tuple[Tensor, Tensor],
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    relu: bool,
    unit: bool,
) -> Tensor:
    """`out` (m, d) of `nodes`, int64 (m,), for x (n, d) and the weights Q (d, d), q (d,), W (2d, d) and w (d,), all on the CPU.

    `shares` are α (nnz, 1), in the order of the edges and of the reversed edges. Differentiable once in x and the weights.
    """
    return _Layer.apply(edges, nodes, shares, relu, unit, x.contiguous(), *weights)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, nodes, shares, relu, unit, x, Q, q, W, w):
        x, Q, q, W, w = (each.detach().numpy() for each in (x, Q, q, W, w))
        n_rows, d = x.shape
        missing = -d % LANES  # M and n have columns of zeros up to a multiple of LANES
        Q, q, W2 = np.pad(Q, ((0, 0), (0, missing))), np.pad(q, (0, missing)), np.pad(W[d:], ((0, missing), (0, 0)))
        M, out = np.empty((n_rows, len(q)), x.dtype), np.empty((len(nodes), d), x.dtype)
        length = np.empty(len(nodes), x.dtype)

        def messages(begin: int, end: int) -> None:
            _relu(np.matmul(x[begin:end], Q, out=M[begin:end]), q)

        in_blocks(messages, n_rows)
        n = sum_at_heads(edges, nodes, shares[0], M)

        def finish(begin: int, end: int) -> None:
            rows = slice(begin, end)
            _finish(x[nodes[rows]] @ W[:d], n[rows] @ W2, w, relu, unit, x.dtype.type(_TINY), out[rows], length[rows])

        in_blocks(finish, len(nodes))
        ctx.edges, ctx.nodes, ctx.of_tails, ctx.how = edges, nodes, shares[1], (relu, unit)
        ctx.arrays = x, Q, W[:d], W2, M, n, out, length
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, Q, W1, W2, M, n, out, length = ctx.arrays
        some, place, g = some_rows(ctx.nodes, len(x), grad.contiguous().numpy())
        nodes = ctx.nodes[some]
        dx, dn = np.zeros_like(x), np.empty((len(some), n.shape[1]), x.dtype)

        def begin_back(begin: int, end: int) -> tuple[np.ndarray, ...]:
            at, own, dP = some[begin:end], nodes[begin:end], np.empty((end - begin, x.shape[1]), x.dtype)
            _finish_back(g[begin:end], at, out, length, *ctx.how, dP)
            np.matmul(dP, W2.T, out=dn[begin:end])
            dx[own] = dP @ W1.T
            return x[own].T @ dP, n[at].T @ dP, dP.sum(axis=0)

        def end_back(begin: int, end: int) -> tuple[np.ndarray, ...]:
            rows = slice(begin, end)
            _relu_back(M[rows], dM[rows])
            dx[rows] += dM[rows] @ Q.T
            return x[rows].T @ dM[rows], dM[rows].sum(axis=0)

        d_W1, d_W2, d_w = summed(in_blocks(begin_back, len(some)), (W1, W2, W1[0]))
        dM = sum_of_some(ctx.edges.tails, place, ctx.of_tails, dn)
        d_Q, d_q = summed(in_blocks(end_back, len(x)), (Q, Q[0]))
        d = x.shape[1]
        gradients = dx, d_Q[:, :d], d_q[:d], np.concatenate([d_W1, d_W2[:d]]), d_w
        return *[None] * 5, *(torch.from_numpy(np.ascontiguousarray(each)) for each in gradients)


@numba.njit(nogil=True, cache=True)
def _relu(rows, bias):
    for r in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            value = rows[r, c] + bias[c]
            rows[r, c] = rows.dtype.type(0) if value <= 0 else value  # a NaN passes through


@numba.njit(nogil=True, cache=True)
def _relu_back(M, dM):
    for r in range(M.shape[0]):
        for c in range(M.shape[1]):
            if M[r, c] <= 0:
                dM[r, c] = 0


# `reassoc` lets a sum be one of vectors, whose order the compiler fixes.
@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def _finish(first, second, bias, relu, unit, tiny, out, length):
    zero = out.dtype.type(0)
    for r in range(out.shape[0]):
        square = zero
        for c in range(out.shape[1]):
            value = first[r, c] + second[r, c] + bias[c]
            if relu:
                value = zero if value <= zero else value
            out[r, c] = value
            square += value * value
        length[r] = max(np.sqrt(square), tiny)
        if unit:
            for c in range(out.shape[1]):
                out[r, c] /= length[r]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def _finish_back(grad, rows, out, length, relu, unit, dP):
    zero = dP.dtype.type(0)
    for r in range(len(rows)):
        row, along = rows[r], zero
        for c in range(dP.shape[1]):
            along += grad[r, c] * out[row, c]
        for c in range(dP.shape[1]):
            value = (grad[r, c] - along * out[row, c]) / length[row] if unit else grad[r, c]
            dP[r, c] = zero if relu and out[row, c] <= zero else value
