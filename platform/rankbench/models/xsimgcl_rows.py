"""All layers of XSimGCL for the nodes that are scored, with their gradient.

    E_l = noisy(Â E_{l-1}),    scored: mean of E_1 … E_L, and E_l* beside it
    ∂E_l = Â ∂E_{l+1} + ∂mean/L, and + ∂E_l* for l = l*,    ∂E_0 = Â ∂E_1

The tables are those of D^-1/2 E_l, so that the neighbours' rows are added without weights, as in `models/propagation.py`. A
loop adds the noise to a row while it is at hand. The last layer is computed for the scored nodes alone, and the gradient begins
with the nodes alone whose scores have one. One thread writes a row, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.splitmix import bits
from rankbench.kernels.edge_rows import list_some, longest
from rankbench.kernels.neighbours import AHEAD, sum_rows
from rankbench.kernels.orthant_noise import add_noise
from rankbench.kernels.parallel import in_blocks, in_parallel
from rankbench.kernels.some_rows import some_rows
from rankbench.models.propagation import Graph


def xsimgcl_rows(
    graph: Graph, nodes: np.ndarray, seeds: Sequence[tuple[int, int]], noise: float, contrast: int, U: Tensor, V: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean of the layers and E_l*, l* = `contrast`, (m, d), of `nodes`, ascending int64 (m,).

    U and V are on the CPU, and d is a multiple of LANES.

    `seeds` are those of the noise of users and of items in each layer. Differentiable once.
    """
    return _Layers.apply(graph, nodes, seeds, noise, contrast, U, V)


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, nodes, seeds, noise, contrast, U, V):
        U, V = (each.detach().numpy() for each in (U, V))
        number, every = U.dtype.type, np.arange(graph.n_nodes)
        scale = graph.scale.numpy()[:, 0].astype(U.dtype)
        h = np.empty((graph.n_nodes, U.shape[1]), U.dtype)
        np.multiply(U, scale[: graph.n_users, None], out=h[: graph.n_users])
        np.multiply(V, scale[graph.n_users :, None], out=h[graph.n_users :])
        final = np.zeros((len(nodes), U.shape[1]), U.dtype)
        layer = np.zeros_like(final)
        for count, of_sides in enumerate(seeds, start=1):
            rows = nodes if count == len(seeds) else every
            table = np.empty((len(rows), U.shape[1]), U.dtype)

            def noisy(begin: int, end: int, rows=rows, of_sides=of_sides, h=h, table=table) -> None:
                side = int(rows[begin] >= graph.n_users)
                drawn = np.uint64(of_sides[side]), side * graph.n_users
                _noisy(rows[begin:end], graph.indptr, graph.indices, scale, h, *drawn, number(noise), table[begin:end])

            in_blocks(noisy, len(rows), int(np.searchsorted(rows, graph.n_users)))
            at = np.arange(len(nodes)) if rows is nodes else nodes
            arrays = nodes, at, scale, table, number(1 / len(seeds)), final, number(count == contrast), layer
            in_parallel(_add_layer, len(nodes), final.size, *arrays)
            h = table
        ctx.given = graph, nodes, scale, len(seeds), contrast
        ctx.set_materialize_grads(False)
        return torch.from_numpy(final), torch.from_numpy(layer)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor | None):
        graph, nodes, scale, n_layers, contrast = ctx.given
        given = [each.contiguous().numpy() for each in grads if each is not None]
        at, place, *rows = some_rows(nodes, graph.n_nodes, *given)
        some = nodes[at]
        nothing = np.zeros_like(rows[0])
        of_mean = rows.pop(0) * scale.dtype.type(1 / n_layers) if grads[0] is not None else nothing
        of_layer = rows.pop(0) if grads[1] is not None else nothing
        own = [of_mean + of_layer if layer == contrast else of_mean for layer in range(n_layers + 1)]
        h, few = own[n_layers] * scale[some, None], True
        for layer in reversed(range(n_layers)):
            table = np.empty((graph.n_nodes, h.shape[1]), h.dtype)
            G = own[layer] if layer else h[:0]

            def back(begin: int, end: int, h=h, few=few, layer=layer, G=G, table=table) -> None:
                arrays = graph.indptr, graph.indices, scale, place, few, h, h.reshape(-1), G, layer > 0, table
                _gradients(begin, end, *arrays)

            in_blocks(back, graph.n_nodes)
            h, few = table, False
        return *[None] * 5, torch.from_numpy(h[: graph.n_users]), torch.from_numpy(h[graph.n_users :])


# Of the fast-math rules only `contract` is used: others let the compiler drop a NaN, which must reach the trainer.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _noisy(nodes, indptr, indices, scale, h, seed, offset, noise, table):
    """Rows of D^-1/2 noisy(Â E) of the nodes, for h = D^-1/2 E."""
    total = np.empty(h.shape[1], h.dtype)
    spare = np.empty(h.shape[1], h.dtype)
    for r in range(len(nodes)):
        node = nodes[r]
        sum_rows(indices, indptr[node], indptr[node + 1], h, total)
        for k in range(h.shape[1]):
            total[k] *= scale[node]
        add_noise(total, noise, bits(seed, node - offset), spare)
        for k in range(h.shape[1]):
            table[r, k] = scale[node] * spare[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def _add_layer(nodes, at, scale, table, weight, final, chosen, layer, start, stop):
    for r in range(start, stop):
        root = scale.dtype.type(1) / scale[nodes[r]]
        for k in range(table.shape[1]):
            value = root * table[at[r], k]
            final[r, k] += weight * value
            if chosen:
                layer[r, k] = value


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _gradients(begin, end, indptr, indices, scale, place, few, h, flat, G, scaled, table):
    """Rows of Â ∂E + G, from h = D^-1/2 ∂E, which has the rows with a place alone if `few`; `scaled`: times D^-1/2."""
    width = table.shape[1]
    total, listed = np.empty(width, h.dtype), np.zeros(longest(indptr, begin, end) + AHEAD, np.int32)
    for row in range(begin, end):
        start, stop = indptr[row], indptr[row + 1]
        if few:
            sum_rows(listed, 0, list_some(indices, start, stop, place, listed, flat, width), h, total)
        else:
            sum_rows(indices, start, stop, h, total)
        at = place[row] if len(G) else -1
        for k in range(width):
            value = scale[row] * total[k]
            if at >= 0:
                value += G[at, k]
            table[row, k] = value * scale[row] if scaled else value
