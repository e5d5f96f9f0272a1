"""All layers of NGCF's program for the nodes that are scored, with their gradient.

    T = A E_l, or (A + I) E_l,    E_{l+1} = layer(T, E_l),    scored: E_0 ‖ E_1/|E_1| ‖ … ‖ E_L/|E_L|, row by row

`models/ngcf_layer.py` has a layer. Here a loop takes blocks of rows that stay in the cache from the sums over neighbours to the
next layer, and from the gradient of a layer to that of the one before. The last layer is computed for the scored nodes alone,
and its gradient for the nodes alone whose scores have one. One thread computes a block, and sums over blocks are taken in their
order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.kernels.edge_rows import list_some, longest_of
from rankbench.kernels.neighbours import AHEAD, sum_rows
from rankbench.kernels.parallel import in_blocks, in_parallel, summed
from rankbench.kernels.some_rows import some_rows
from rankbench.models.ngcf_layer import TINY, activate, activate_back, inputs_back, numbers_of
from rankbench.models.propagation import Graph


def ngcf_rows(
    graph: Graph,
    nodes: np.ndarray,
    share: Tensor,
    around: tuple[bool, bool],
    rate: float,
    keys: Sequence[tuple[int, int]],
    U: Tensor,
    V: Tensor,
    weights: Sequence[Tensor],
) -> Tensor:
    """The scored vectors (m, (L + 1) d) of `nodes`, ascending int64 (m,), for U and V on the CPU, with d a multiple of LANES.

    `around`: whether a node is among its neighbours in T, and whether S = share ∘ T + E. `keys` are those of dropout, for the
    users and the items of each layer; `weights` W, b, V and c of each layer in turn. Differentiable once in U, V and these.
    """
    return _Layers.apply(graph, nodes, share, around, rate, keys, U, V, *weights)


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, nodes, share, around, rate, keys, U, V, *weights):
        U, V, share, *weights = (each.detach().contiguous().numpy() for each in (U, V, share, *weights))
        E = np.concatenate([U, V])
        every = np.arange(graph.n_nodes)
        ctx.shared = _Shared(graph, every, share, around, E.dtype.type, numbers_of(E.dtype.type, rate), keys, weights)
        layers = [_Layer(every, E, None, None)]
        for number in range(len(keys)):
            rows = nodes if number == len(keys) - 1 else every
            layers.append(ctx.shared.next_layer(number, layers[-1].out, rows))
        scored = np.empty((len(nodes), len(layers) * E.shape[1]), E.dtype)
        in_parallel(_score, len(nodes), scored.size, nodes, E, 0, False, scored)
        for number, layer in enumerate(layers[1:], start=1):
            rows = np.arange(len(nodes)) if layer.rows is nodes else nodes
            in_parallel(_score, len(nodes), scored.size, rows, layer.out, number * E.shape[1], True, scored)
        ctx.nodes, ctx.layers = nodes, layers
        return torch.from_numpy(scored)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        shared, nodes, layers = ctx.shared, ctx.nodes, ctx.layers
        at, place, given = some_rows(nodes, shared.graph.n_nodes, grad.contiguous().numpy())
        graph, some, slopes = shared.graph, nodes[at], []
        later: _Later = (layers[0].out[:0], layers[0].out[:0], place)
        for number in reversed(range(1, len(layers))):
            last = number == len(layers) - 1
            rows, source = (some, at) if last else (shared.every, shared.every)
            (d_T, d_E), of_weights = shared.back(
                number, layers[number], layers[number - 1].out, rows, source, later, given, place
            )
            slopes = [*of_weights, *slopes]
            later = d_T, d_E, place if last else _ALL
        E = layers[0].out
        G = np.empty_like(E)

        def first(begin: int, end: int) -> None:
            shared.received(shared.every[begin:end], later, G[begin:end])
            _add_scored(shared.every[begin:end], shared.every[begin:end], place, given, 0, False, E, G[begin:end])

        in_blocks(first, len(G))
        sides = G[: graph.n_users], G[graph.n_users :]
        return *[None] * 6, *(torch.from_numpy(each) for each in (*sides, *slopes))


_ALL = np.zeros(0, np.int32)  # places of rows, if there is one for every node
_Later = tuple[np.ndarray, np.ndarray, np.ndarray]  # ∂T and ∂E of a layer's rows, and the place of each node among them


class _Layer(NamedTuple):
    """Output and what the gradient needs of a layer, for the nodes `rows`."""

    rows: np.ndarray
    out: np.ndarray
    S: Any
    signs: Any


class _Shared(NamedTuple):
    """What all layers have in common."""

    graph: Graph
    every: np.ndarray
    share: np.ndarray
    around: tuple[bool, bool]
    dtype: Any
    numbers: tuple
    keys: Sequence[tuple[int, int]]
    weights: Sequence[np.ndarray]

    def next_layer(self, number: int, E: np.ndarray, rows: np.ndarray) -> _Layer:
        """The layer that follows E (n_nodes, d), for the nodes `rows`."""
        W, b, V, c = self.weights[4 * number : 4 * number + 4]
        S, out, signs = (np.empty((len(rows), E.shape[1]), dtype) for dtype in (E.dtype, E.dtype, np.uint8))

        def block(begin: int, end: int) -> None:
            part, nodes = slice(begin, end), rows[begin:end]
            X = np.empty((end - begin, E.shape[1]), E.dtype)
            itself, own = (self.dtype(each) for each in self.around)
            _inputs(nodes, self.graph.indptr, self.graph.indices, itself, own, self.share, E, S[part], X)
            drawn = self.drawn(number, nodes)
            activate(S[part] @ W, X @ V, b[0], c[0], *self.numbers, *drawn, out[part], signs[part])

        in_blocks(block, len(rows), int(np.searchsorted(rows, self.graph.n_users)))
        return _Layer(rows, out, S, signs)

    def drawn(self, number: int, nodes: np.ndarray) -> tuple[np.uint64, np.ndarray]:
        """The key of dropout of some users or items, and their numbers among the users, or items."""
        side = int(len(nodes) > 0 and nodes[0] >= self.graph.n_users)
        return np.uint64(self.keys[number][side]), nodes - side * self.graph.n_users

    def received(self, nodes: np.ndarray, later: _Later, G: np.ndarray) -> None:
        """Set G (m, d) to the gradients of the output of `nodes` from the layer that reads it."""
        d_T, d_E, place = later
        _received(nodes, self.graph.indptr, self.graph.indices, self.dtype(self.around[0]), place, d_T, d_T.reshape(-1), d_E, G)

    def back(
        self, number, layer, E, rows, source, later, given, place
    ) -> tuple[tuple[np.ndarray, np.ndarray], list[np.ndarray]]:
        """∂T and ∂E of layer `number`, counted from 1, for the nodes `rows`, which are the rows `source` of the layer; and the
        gradients of its weights. E is its input, and `given` the gradient of the scored rows.
        """
        W, _, V, _ = weights = self.weights[4 * number - 4 : 4 * number]
        d_T, d_E = (np.empty((len(rows), E.shape[1]), E.dtype) for _ in range(2))

        def block(begin: int, end: int) -> tuple[np.ndarray, ...]:
            nodes, at, part = rows[begin:end], source[begin:end], slice(begin, end)
            G, dP, dQ = (np.empty((end - begin, E.shape[1]), E.dtype) for _ in range(3))
            self.received(nodes, later, G)
            _add_scored(nodes, at, place, given, number * E.shape[1], True, layer.out, G)
            S, own, signs = layer.S[at], E[nodes], layer.signs[at]
            d_b, d_c = (np.empty((1, len(W)), E.dtype) for _ in range(2))
            drawn = self.drawn(number - 1, nodes)
            activate_back(signs, G, *self.numbers, *drawn, dP, dQ, d_b[0], d_c[0])
            slopes = S.T @ dP, d_b, (S * own).T @ dQ, d_c
            itself = self.dtype(self.around[1])
            inputs_back(dP @ W.T, dQ @ V.T, S, own, self.share[nodes], itself, d_T[part], d_E[part])
            return slopes

        parts = in_blocks(block, len(rows), int(np.searchsorted(rows, self.graph.n_users)))
        return (d_T, d_E), summed(parts, weights)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _inputs(nodes, indptr, indices, itself, own, share, E, S, X):
    """S and S ∘ E of the nodes."""
    d = E.shape[1]
    total = np.empty(d, E.dtype)
    for r in range(len(nodes)):
        node = nodes[r]
        sum_rows(indices, indptr[node], indptr[node + 1], E, total)
        for k in range(d):
            S[r, k] = share[node] * (total[k] + itself * E[node, k]) + own * E[node, k]
            X[r, k] = S[r, k] * E[node, k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _received(nodes, indptr, indices, itself, place, d_T, flat, d_E, G):
    d = G.shape[1]
    total, listed = np.empty(d, G.dtype), np.zeros(longest_of(indptr, nodes, 0, len(nodes)) + AHEAD, np.int32)
    for r in range(len(nodes)):
        node = nodes[r]
        start, stop = indptr[node], indptr[node + 1]
        if len(d_E) == 0:
            total[:] = 0
        elif len(place) == 0:
            sum_rows(indices, start, stop, d_T, total)
        else:
            sum_rows(listed, 0, list_some(indices, start, stop, place, listed, flat, d), d_T, total)
        at = node if len(place) == 0 else place[node]
        for k in range(d):
            G[r, k] = total[k]
            if len(d_E) and at >= 0:
                G[r, k] += itself * d_T[at, k] + d_E[at, k]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def _score(rows, vectors, column, unit, scored, start, stop):
    """Write rows of `vectors`, or their directions, as columns of the rows start to stop of `scored`."""
    d, zero = vectors.shape[1], vectors.dtype.type(0)
    for r in range(start, stop):
        square = zero
        for k in range(d):
            square += vectors[rows[r], k] * vectors[rows[r], k]
        length = max(np.sqrt(square), vectors.dtype.type(TINY)) if unit else vectors.dtype.type(1)
        for k in range(d):
            scored[r, column + k] = vectors[rows[r], k] / length


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def _add_scored(nodes, rows, place, given, column, unit, vectors, G):
    """Add the gradients of what `_score` writes, for the nodes that have a place among the rows of `given`."""
    d, zero = vectors.shape[1], vectors.dtype.type(0)
    for r in range(len(nodes)):
        at = place[nodes[r]]
        if at < 0:
            continue
        along, square = zero, zero
        for k in range(d):
            along += given[at, column + k] * vectors[rows[r], k]
            square += vectors[rows[r], k] * vectors[rows[r], k]
        length = max(np.sqrt(square), vectors.dtype.type(TINY)) if unit else vectors.dtype.type(1)
        along = along / (length * length) if unit else zero
        for k in range(d):
            G[r, k] += (given[at, column + k] - along * vectors[rows[r], k]) / length
