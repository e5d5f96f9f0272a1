"""Directed edges with a weight each: sums of the vectors at their tails, products of the vectors at their two ends.

    y_hk = Σ_{e = (h ← t)} w_ek x_tk        `weighted_sums`; h is the head of the edge e and t its tail
    s_ek = a_hk · b_tk                      `edge_products`
    ∂x_tk = Σ_{e = (h ← t)} w_ek ∂y_hk      the same sum over the reversed edges
    ∂w_ek = ∂y_hk · x_tk                    computed in the same pass, while ∂y_h is at hand

A vector of width K·c has K chunks of c numbers side by side, and an edge a weight for each chunk; K = 1 is the plain sparse
product. Every row of a result is written by one thread, in the order of its edges, so the bits do not depend on the number of
threads. Each kernel takes one pass over the edges and keeps no vector per edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.kernels.edge_rows import SEGMENT, add_rows, chunked, dot_rows, list_some, longest, unchunked
from rankbench.kernels.neighbours import AHEAD, ends_with_zeros
from rankbench.kernels.parallel import even_blocks, over

BLOCKS = 32  # number of blocks of rows, the same for any number of threads
INDEX = 24  # numbers of four bytes per interaction that the arrays of both directions take while they are made


@dataclass(frozen=True, eq=False)
class Rows:
    """The edges of each node in CSR form: `indptr` int64 (n_nodes + 1,), and the nodes at their other ends, int32 (nnz,), as
    the first part of `padded`, an index that ends with zeros.
    """

    indptr: np.ndarray
    padded: np.ndarray

    @classmethod
    def of(cls, indptr: np.ndarray, ends: np.ndarray) -> Rows:
        return cls(indptr.astype(np.int64), ends_with_zeros(ends))

    @property
    def ends(self) -> np.ndarray:
        return self.padded[: self.indptr[-1]]

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of rows of about equal work: the edges of a row, and reading and writing the row itself."""
        work = self.indptr + 2 * np.arange(len(self.indptr))
        cuts = np.searchsorted(work, np.linspace(0, work[-1], BLOCKS + 1)).tolist()
        return [(begin, end) for begin, end in pairwise(cuts) if begin < end]

    def each(self, kernel: Callable, *arguments: Any) -> list[Any]:
        """Call kernel(begin, end, *arguments) for every block, on the threads of the fit, and return the results in order."""
        return over(self.blocks, kernel, *arguments)


class EdgeTensors(NamedTuple):
    """The arrays of `Edges` as int64 tensors on a device; `head` and `tail` (nnz,) are the ends of every edge."""

    indptr: Tensor
    head: Tensor
    tail: Tensor
    reversed_indptr: Tensor
    reverse: Tensor


class Edges:
    """The edges h ← t among n_nodes nodes, in the order of h.

    `heads`: Rows of the edges that arrive at each node; position e in an array of weights (nnz,) belongs to its e-th edge.
    `tails`: Rows of the edges that leave each node, and `reverse` int64 (nnz,) the position in `heads` of each of them.
    """

    def __init__(self, indptr: np.ndarray, tail: np.ndarray):
        """`indptr` (n_nodes + 1,) and `tail` (nnz,) are the CSR arrays of the edges that arrive at each node."""
        self.n_nodes, self.nnz = len(indptr) - 1, len(tail)
        self.heads = Rows.of(indptr, tail)
        positions = sp.csr_array((np.arange(self.nnz), self.heads.ends, self.heads.indptr), shape=(self.n_nodes,) * 2)
        reversed_edges = positions.T.tocsr()
        self.reverse = reversed_edges.data.astype(np.int64)
        self.tails = Rows.of(reversed_edges.indptr, reversed_edges.indices)
        self._tensors: dict[torch.device, EdgeTensors] = {}

    @classmethod
    def between(cls, X: sp.csr_array, loops: bool = False) -> Edges:
        """The edges of the interactions X (n_users, n_items), 0/1 CSR, in both directions; items follow the users as nodes.

        With `loops`, there is also an edge from every node to itself.
        """
        X = sp.csr_array((np.ones(X.nnz, np.int8), X.indices, X.indptr), shape=X.shape)
        own = [sp.eye_array(n, dtype=np.int8, format="csr") if loops else None for n in X.shape]
        A = sp.csr_array(sp.block_array([[own[0], X], [X.T, own[1]]], format="csr"))
        A.sort_indices()
        return cls(A.indptr, A.indices)

    @property
    def degree(self) -> np.ndarray:
        """Number of edges that arrive at each node, int64 (n_nodes,)."""
        return np.diff(self.heads.indptr)

    def on(self, device: torch.device) -> EdgeTensors:
        if device not in self._tensors:
            indptr, reversed_indptr = torch.from_numpy(self.heads.indptr), torch.from_numpy(self.tails.indptr)
            head = torch.repeat_interleave(torch.arange(self.n_nodes), indptr.diff())
            arrays = indptr, head, torch.from_numpy(self.heads.ends).long(), reversed_indptr, torch.from_numpy(self.reverse)
            self._tensors[device] = EdgeTensors(*(array.to(device) for array in arrays))
        return self._tensors[device]


def weighted_sums(edges: Edges, weights: Tensor, x: Tensor) -> Tensor:
    """Compute y_hk = Σ_{e = (h ← t)} weights[e, k] x_tk, of the shape and dtype of x.

    `weights` (nnz, K) and x (n_nodes, K·c) have one floating dtype and device. Differentiable once, with respect to both.
    """
    return _WeightedSums.apply(edges, weights.contiguous(), x.contiguous())


def edge_products(edges: Edges, a: Tensor, b: Tensor, chunks: int) -> Tensor:
    """Compute s_ek = a_hk · b_tk for every edge h ← t and chunk k, (nnz, chunks).

    a and b (n_nodes, chunks·c) have one floating dtype and device. Differentiable once, with respect to both.
    """
    return _EdgeProducts.apply(edges, a.contiguous(), b.contiguous(), chunks)


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges: Edges, weights: Tensor, x: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(weights, x)
        return _sum_at_heads(edges, weights, x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weights, x = ctx.saved_tensors
        edges, grad = ctx.edges, grad.contiguous()
        of_weights, of_x = ctx.needs_input_grad[1:]
        if of_weights and of_x and compiled(grad.device):
            d_weights, chunks, side = torch.empty_like(weights), weights.shape[1], edges.tails
            rows, given = chunked(x, chunks), chunked(grad, chunks)
            dx, flat = np.empty_like(rows), (rows.reshape(-1), given.reshape(-1), rows.shape[1])
            arrays = side.indptr, side.padded, edges.reverse, weights.numpy(), *flat, d_weights.numpy(), dx.reshape(-1)
            side.each(_back, *arrays)
            return None, d_weights, unchunked(torch.from_numpy(dx), chunks, x.shape[1])
        d_weights = _products(edges, grad, x, weights.shape[1]) if of_weights else None
        return None, d_weights, _sum_at_tails(edges, weights, grad) if of_x else None


class _EdgeProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges: Edges, a: Tensor, b: Tensor, chunks: int) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(a, b)
        return _products(edges, a, b, chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        a, b = ctx.saved_tensors
        edges, grad = ctx.edges, grad.contiguous()
        of_a, of_b = ctx.needs_input_grad[1:3]
        da = _sum_at_heads(edges, grad, b) if of_a else None
        return None, da, _sum_at_tails(edges, grad, a) if of_b else None, None


def _sum_at_heads(edges: Edges, weights: Tensor, x: Tensor) -> Tensor:
    if compiled(x.device):
        return _gathered(edges.heads, None, weights, x)
    e = edges.on(x.device)
    return segment_sums(weighted(weights, x[e.tail]), e.indptr)


def _sum_at_tails(edges: Edges, weights: Tensor, y: Tensor) -> Tensor:
    """Σ_{e = (h ← t)} weights[e, k] y_hk for every tail t."""
    if compiled(y.device):
        return _gathered(edges.tails, edges.reverse, weights, y)
    e = edges.on(y.device)
    return segment_sums(weighted(weights[e.reverse], y[e.head[e.reverse]]), e.reversed_indptr)


def sum_at_heads(edges: Edges, nodes: np.ndarray, weights: Tensor, x: np.ndarray) -> np.ndarray:
    """Σ_{e = (h ← t)} weights[e, 0] x_t for the heads `nodes` (m,), (m, d), for rows x whose width is a multiple of LANES."""
    out, stride, side = np.empty((len(nodes), x.shape[1]), x.dtype), x.shape[1], edges.heads
    blocks = even_blocks(stride * np.cumsum(np.append(0, edges.degree[nodes] + 2)))
    over(blocks, _gather, nodes, side.indptr, side.padded, None, weights.numpy(), x.reshape(-1), stride, out.reshape(-1))
    return out


def sum_of_some(side: Rows, place: np.ndarray, weights: Tensor, rows: np.ndarray) -> np.ndarray:
    """Σ_s weights[s, 0] rows[place[ends[s]]] over the edges s of each node whose other end has a place ≥ 0, (n_nodes, d).

    `weights` are in the order of `side`. The width of the rows is a multiple of LANES.
    """
    out, stride = np.empty((len(side.indptr) - 1, rows.shape[1]), rows.dtype), rows.shape[1]
    side.each(_gather_some, side.indptr, side.ends, place, weights.numpy(), rows.reshape(-1), stride, out.reshape(-1))
    return out


def _gathered(side: Rows, positions: np.ndarray | None, weights: Tensor, x: Tensor) -> Tensor:
    rows = chunked(x, weights.shape[1])
    out = np.empty_like(rows)
    arrays = weights.detach().numpy(), rows.reshape(-1), rows.shape[1], out.reshape(-1)
    side.each(_gather, None, side.indptr, side.padded, positions, *arrays)
    return unchunked(torch.from_numpy(out), weights.shape[1], x.shape[1])


def _products(edges: Edges, a: Tensor, b: Tensor, chunks: int) -> Tensor:
    if compiled(a.device):
        out, side, (left, right) = a.new_empty(edges.nnz, chunks), edges.heads, (chunked(each, chunks) for each in (a, b))
        side.each(_dots, side.indptr, side.padded, left.reshape(-1), right.reshape(-1), left.shape[1], out.detach().numpy())
        return out
    e = edges.on(a.device)
    return (a[e.head] * b[e.tail]).unflatten(1, (chunks, -1)).sum(dim=2)


def weighted(weights: Tensor, vectors: Tensor) -> Tensor:
    """Chunk k of each of the vectors (n, K·c) times weights[:, k], for weights (n, K)."""
    return (weights[:, :, None] * vectors.unflatten(1, (weights.shape[1], -1))).flatten(1)


def segment_sums(rows: Tensor, indptr: Tensor) -> Tensor:
    """Sums of the consecutive rows indptr[i] to indptr[i + 1], for every i, on any device.

    Unlike index_add_, it adds them in one order on a GPU, too.
    """
    return torch.segment_reduce(rows, "sum", offsets=indptr, axis=0, initial=0)


@numba.njit(nogil=True, cache=True)
def _gather(begin, end, nodes, indptr, ends, positions, weights, x, stride, out):
    """Sums over the edges of each row, or of the rows nodes[begin : end] if `nodes` is not None.

    The weights of the edge s stand at positions[s], or at s if `positions` is None.
    """
    chunks, given = weights.shape[1], np.empty(SEGMENT * weights.shape[1], weights.dtype)
    for row in range(begin, end):
        for c in range(stride):
            out[row * stride + c] = 0
        node = row if nodes is None else nodes[row]
        for start in range(indptr[node], indptr[node + 1], SEGMENT):
            stop = min(start + SEGMENT, indptr[node + 1])
            for s in range(start, stop):
                e = s if positions is None else positions[s]
                for k in range(chunks):
                    given[k * SEGMENT + s - start] = weights[e, k]
            add_rows(ends, start, stop, given, 0, SEGMENT, chunks, x, stride, out, row * stride)


@numba.njit(nogil=True, cache=True)
def _gather_some(begin, end, indptr, ends, place, weights, x, stride, out):
    pitch = longest(indptr, begin, end)
    given, listed = np.empty(pitch, x.dtype), np.zeros(pitch + AHEAD, np.int32)
    for row in range(begin, end):
        n = 0
        for s in range(indptr[row], indptr[row + 1]):
            if place[ends[s]] >= 0:
                given[n] = weights[s, 0]
                n += 1
        list_some(ends, indptr[row], indptr[row + 1], place, listed, x, stride)
        for c in range(stride):
            out[row * stride + c] = 0
        add_rows(listed, 0, n, given, 0, pitch, 1, x, stride, out, row * stride)


@numba.njit(nogil=True, cache=True)
def _dots(begin, end, indptr, ends, a, b, stride, out):
    chunks, pitch = out.shape[1], longest(indptr, begin, end)
    products = np.empty(pitch * chunks, a.dtype)
    for row in range(begin, end):
        start, stop = indptr[row], indptr[row + 1]
        dot_rows(ends, start, stop, a, row * stride, chunks, b, stride, products, 0, pitch)
        for s in range(start, stop):
            for k in range(chunks):
                out[s, k] = products[k * pitch + s - start]


@numba.njit(nogil=True, cache=True)
def _back(begin, end, indptr, ends, positions, weights, x, grad, stride, d_weights, dx):
    """Both gradients of the weighted sums, for the edges that leave each row; each ∂y_h is read from memory once."""
    chunks, pitch = weights.shape[1], SEGMENT
    given, products = np.empty(pitch * chunks, weights.dtype), np.empty(pitch * chunks, weights.dtype)
    for row in range(begin, end):
        for c in range(stride):
            dx[row * stride + c] = 0
        for start in range(indptr[row], indptr[row + 1], SEGMENT):
            stop = min(start + SEGMENT, indptr[row + 1])
            dot_rows(ends, start, stop, x, row * stride, chunks, grad, stride, products, 0, pitch)
            for s in range(start, stop):
                for k in range(chunks):
                    d_weights[positions[s], k] = products[k * pitch + s - start]
                    given[k * pitch + s - start] = weights[positions[s], k]
            add_rows(ends, start, stop, given, 0, pitch, chunks, grad, stride, dx, row * stride)
