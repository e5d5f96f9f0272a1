"""A layer of GAT with its gradient, in two passes over the edges that keep nothing per edge.

    H = f(x) W,    z_e = t_h + s_j,    α_e = exp(ℓ(z_e) − L_h),    y_h = Σ_{e = (h ← j)} α_e H_j,    ℓ = LeakyReLU
    ∂z_e = ℓ'(z_e) α_e (g_h · H_j − m_h),    m_h = Σ_e α_e (g_h · H_j) = g_h · y_h,    g = ∂y
    ∂t_h = Σ_e ∂z_e = g_h · ŷ_h − m_h c_h,    ŷ_h = Σ_e ℓ'(z_e) α_e H_j,    c_h = Σ_e ℓ'(z_e) α_e

t_h = a_dst · H_h and s_j = a_src · H_j, for each head in turn, and f is ELU or the identity (Veličković et al., ICLR 2018).
L_h is the logarithm of the sum of exponentials. The forward pass computes y and ŷ together, so that the gradient needs one more
pass over the edges, in which an edge whose ∂y_h is 0 costs nothing; `attention` of `gat.py` has the steps one by one. One
thread computes a row, and sums over blocks of rows are taken in order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES
from rankbench.kernels.edge_rows import SEGMENT, add_rows, chunked, dot_rows, exp_of, list_some, longest, longest_of, unchunked
from rankbench.kernels.neighbours import AHEAD
from rankbench.kernels.parallel import even_blocks, in_parallel, over
from rankbench.kernels.some_rows import some_rows
from rankbench.models.edges import Edges

SLOPE = 0.2  # of LeakyReLU below 0, as in the paper


def gat_layer(
    edges: Edges, nodes: np.ndarray, x: Tensor, weight: Tensor, at_head: Tensor, at_tail: Tensor, activated: bool
) -> Tensor:
    """y (m, K·c) of `nodes`, int64 (m,), for x (n_nodes, d), W = `weight` (d, K·c), and a_dst and a_src as `at_head` and
    `at_tail` (c, K).

    All are on the CPU. `activated`: whether f is ELU. Differentiable once in all of them.
    """
    return _Layer.apply(edges, nodes, x.contiguous(), weight, at_head, at_tail, activated)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, nodes, x, weight, at_head, at_tail, activated) -> Tensor:
        K, side = at_head.shape[1], edges.heads
        given, W = x.detach().numpy(), chunked(weight, K)
        # (K·c, 2K): the products with a row of H are t and s of its node.
        A = np.concatenate([chunked(torch.block_diag(*a.detach().T[:, :, None]).T, K).T for a in (at_head, at_tail)], axis=1)
        H, t, s = (np.empty((len(given), columns), W.dtype) for columns in (W.shape[1], K, K))

        def features(begin: int, end: int) -> None:
            np.matmul(_elu(given[begin:end]) if activated else given[begin:end], W, out=H[begin:end])
            np.matmul(H[begin:end], A[:, :K], out=t[begin:end])
            np.matmul(H[begin:end], A[:, K:], out=s[begin:end])

        side.each(features)
        y = np.empty((len(nodes), H.shape[1]), H.dtype)
        y_slope = np.empty_like(y) if any(ctx.needs_input_grad) else y[:0]
        logs, slopes = (np.zeros((len(nodes), K), H.dtype) for _ in range(2))  # also of a node without edges
        arrays = H.reshape(-1), H.shape[1], t.reshape(-1), s.reshape(-1), y.reshape(-1), y_slope.reshape(-1), logs, slopes
        blocks = even_blocks(H.shape[1] * np.cumsum(np.append(0, edges.degree[nodes] + 2)))
        over(blocks, _attend, nodes, side.indptr, side.padded, H.dtype.type(SLOPE), *arrays)
        ctx.edges, ctx.nodes, ctx.activated = edges, nodes, activated
        ctx.arrays = given, W, A, H, t, s, y, y_slope, logs, slopes
        return unchunked(torch.from_numpy(y), K, weight.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, W, A, H, t, s, y, y_slope, logs, slopes = ctx.arrays
        K, side, stride = t.shape[1], ctx.edges.tails, H.shape[1]
        some, place, g = some_rows(ctx.nodes, len(H), chunked(grad, K))
        heads = ctx.nodes[some]
        d_ts, of_heads = np.zeros((len(H), 2 * K), H.dtype), np.empty((len(some), 3 * K), H.dtype)
        in_parallel(_of_heads, len(some), g.size, some, heads, g, y, y_slope, t, logs, slopes, of_heads, d_ts)
        dH, dx, flat = np.empty_like(H), np.empty_like(x), g.reshape(-1)

        def back(begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
            rows = slice(begin, end)
            arrays = H.dtype.type(SLOPE), H.reshape(-1), flat, stride, s.reshape(-1), of_heads, d_ts, dH.reshape(-1)
            _attend_back(begin, end, side.indptr, side.ends, place, *arrays)
            dH[rows] += d_ts[rows] @ A.T
            np.matmul(dH[rows], W.T, out=dx[rows])
            features = _elu(x[rows]) if ctx.activated else x[rows]
            if ctx.activated:
                _elu_back(features, dx[rows])
            return features.T @ dH[rows], H[rows].T @ d_ts[rows]

        d_W, d_A = (torch.from_numpy(np.sum(parts, axis=0)) for parts in zip(*side.each(back), strict=True))
        width = grad.shape[1] // K
        # Of d_A, the products of each head with its own features.
        at_heads = d_A.unflatten(0, (K, -1))[:, :width].unflatten(2, (2, K)).diagonal(dim1=0, dim2=3).unbind(dim=1)
        return None, None, torch.from_numpy(dx), unchunked(d_W, K, grad.shape[1]), *at_heads, None


# `reassoc` lets sums be those of vectors, whose order the compiler fixes.
@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def _attend(begin, end, nodes, indptr, ends, slope, H, stride, t, s, y, y_slope, logs, slopes):
    """y and the other sums of the nodes nodes[begin : end]. `y_slope` is empty if no gradient is wanted."""
    K, pitch = logs.shape[1], longest_of(indptr, nodes, begin, end)
    width, zero, one = stride // K, t.dtype.type(0), t.dtype.type(1)
    weights, steep = np.zeros(pitch * K, t.dtype), np.zeros(pitch * K, t.dtype)
    shares = np.zeros(K, t.dtype)
    for row in range(begin, end):
        node, at = nodes[row], row * stride
        first, n = indptr[node], indptr[node + 1] - indptr[node]
        for k in range(K):
            i, own, most = k * pitch, t[node * K + k], -t.dtype.type(np.inf)
            for e in range(n):
                z = own + s[np.uint64(ends[first + e]) * np.uint64(K) + np.uint64(k)]
                steep[i + e] = one if z > zero else slope
                z *= steep[i + e]
                weights[i + e] = z
                most = z if z > most else most
            for e in range(n):
                weights[i + e] -= most
            exp_of(weights, i, n)
            total, of_slopes = zero, zero
            for e in range(n):
                total += weights[i + e]
                steep[i + e] *= weights[i + e]
                of_slopes += steep[i + e]
            if n:
                shares[k] = one / total
                logs[row, k], slopes[row, k] = most + np.log(total), of_slopes * shares[k]
        for c in range(stride):
            y[at + c] = zero
        if len(y_slope) == 0:
            add_rows(ends, first, first + n, weights, 0, pitch, K, H, stride, y, at)
        else:
            for c in range(stride):
                y_slope[at + c] = zero
            for start in range(0, n, SEGMENT):
                stop = min(start + SEGMENT, n)
                add_rows(ends, first + start, first + stop, weights, start, pitch, K, H, stride, y, at)
                add_rows(ends, first + start, first + stop, steep, start, pitch, K, H, stride, y_slope, at)
            for k in range(K):
                for c in range(at + k * width, at + (k + 1) * width):
                    y_slope[c] *= shares[k]
        for k in range(K):
            for c in range(at + k * width, at + (k + 1) * width):
                y[c] *= shares[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _of_heads(some, heads, g, y, y_slope, t, logs, slopes, of_heads, d_ts, start, stop):
    """For the nodes `heads`, the rows `some` of y, with gradients g: t, L and m in `of_heads`, and ∂t in `d_ts`."""
    K = logs.shape[1]
    width = g.shape[1] // K
    for at in range(start, stop):
        row, node = some[at], heads[at]
        for k in range(K):
            m = y.dtype.type(0)
            d_t = y.dtype.type(0)
            for c in range(k * width, (k + 1) * width):
                m += g[at, c] * y[row, c]
                d_t += g[at, c] * y_slope[row, c]
            of_heads[at, k], of_heads[at, K + k], of_heads[at, 2 * K + k] = t[node, k], logs[row, k], m
            d_ts[node, k] = d_t - m * slopes[row, k]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _attend_back(begin, end, indptr, ends, place, slope, H, g, stride, s, of_heads, d_ts, dH):
    """∂H from the edges that leave the nodes begin to end, and ∂s of these nodes. Row place[h] of g is ∂y_h, unless < 0."""
    K, pitch = of_heads.shape[1] // 3, longest(indptr, begin, end)
    zero, one = s.dtype.type(0), s.dtype.type(1)
    weights, steep, products = np.zeros(pitch * K, s.dtype), np.zeros(pitch * K, s.dtype), np.empty(pitch * K, s.dtype)
    heads = np.zeros(pitch + AHEAD, np.int32)
    for row in range(begin, end):
        n, at = list_some(ends, indptr[row], indptr[row + 1], place, heads, g, stride), row * stride
        for k in range(K):
            i, own = k * pitch, s[row * K + k]
            for e in range(n):
                z = own + of_heads[heads[e], k]
                steep[i + e] = one if z > zero else slope
                weights[i + e] = steep[i + e] * z - of_heads[heads[e], K + k]
            exp_of(weights, i, n)
        for c in range(stride):
            dH[at + c] = zero
        for start in range(0, n, SEGMENT):
            stop = min(start + SEGMENT, n)
            dot_rows(heads, start, stop, H, at, K, g, stride, products, start, pitch)
            add_rows(heads, start, stop, weights, start, pitch, K, g, stride, dH, at)
        for k in range(K):
            i, total = k * pitch, zero
            for e in range(n):
                total += steep[i + e] * weights[i + e] * (products[i + e] - of_heads[heads[e], 2 * K + k])
            d_ts[row, K + k] = total


@numba.njit(nogil=True, cache=True)
def _elu(x):
    """ELU of the rows x."""
    out, powers = np.empty_like(x), np.zeros(x.shape[1] + LANES, x.dtype)
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            powers[c] = min(x[r, c], x.dtype.type(0))
        exp_of(powers, 0, x.shape[1])
        for c in range(x.shape[1]):
            out[r, c] = x[r, c] if x[r, c] > 0 else powers[c] - x.dtype.type(1)
    return out


@numba.njit(nogil=True, cache=True)
def _elu_back(out, grad):
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            if not out[r, c] > 0:
                grad[r, c] *= out[r, c] + out.dtype.type(1)
