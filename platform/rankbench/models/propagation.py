"""The graph of the training interactions, and the propagation of learned vectors through its layers.

    Â = [ 0   R ]      R = D_u^-1/2 X D_i^-1/2,      E = [ U ]      layer l: Â^l E      (He et al., SIGIR 2020, Eq. 3 and 7)
        [ Rᵀ  0 ]                                        [ V ]

`propagate` computes a polynomial Σ_l c_l Â^l E by Horner's rule, h ← c_l E + Â h, so no layer is kept. Â is symmetric, so the
gradient is the same polynomial of the incoming gradient. With h = D^1/2 h̃ the product needs no weights:
h̃ ← D^-1/2 c_l E + D^-1 [0 X; Xᵀ 0] h̃, which sums the neighbours' rows. A row without neighbours is c_0 E. With `scaled=False`,
D is the identity: the polynomial is that of the adjacency matrix A = [0 X; Xᵀ 0].

Workers that train one model together share the rows of each product, and complete it before the next one. Every worker has the
gradient of its own part of a batch, so the gradients are summed before they are propagated. What comes out is the rows of this
worker, and zeros: the sum over the workers is the gradient, as for all parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.kernels.graph_rows import first_rows, last_rows, next_rows
from rankbench.kernels.neighbours import empty_table, ends_with_zeros
from rankbench.kernels.parallel import even_blocks, over
from rankbench.models.exchange import Exchange


def propagate(graph: Graph, U: Tensor, V: Tensor, weights: Sequence[float], scaled: bool = True) -> tuple[Tensor, Tensor]:
    """Compute the rows of users and those of items of Σ_l weights[l] Â^l [U; V], differentiable any number of times.

    U (n_users, d) and V (n_items, d) have one dtype and device; `weights` are those of layers 0, 1, ..., at least two. It is
    differentiable once where several workers share the graph. Without `scaled`, A takes the place of Â.
    """
    return _Polynomial.apply(graph, tuple(weights), scaled, U, V)


class _Polynomial(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph: Graph, weights: tuple[float, ...], scaled: bool, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        ctx.graph, ctx.weights, ctx.scaled = graph, weights, scaled
        polynomial = graph.by_rows if compiled(U.device) else graph.by_matrix
        out = polynomial(weights, U.contiguous(), V.contiguous(), scaled)
        if graph.shared(U.device):
            graph.exchange.complete(out)
        return out

    @staticmethod
    def backward(ctx, U: Tensor, V: Tensor):
        graph = ctx.graph
        if not graph.shared(U.device):
            return None, None, None, *propagate(graph, U, V, ctx.weights, ctx.scaled)
        U, V = U.clone(memory_format=torch.contiguous_format), V.clone(memory_format=torch.contiguous_format)
        graph.exchange.sum([U, V])
        return None, None, None, *graph.by_rows(ctx.weights, U, V, ctx.scaled)


class Graph:
    """The neighbours in X, 0/1 CSR (n_users, n_items). Users are the nodes 0 to n_users − 1, and items follow them.

    With an `exchange`, the rows of users and those of items are shared by several workers.
    """

    exchange = Exchange()

    def __init__(self, X: sp.csr_array):
        X, Xt = sp.csr_array(X), sp.csr_array(X.T)
        self.n_users, self.n_nodes = X.shape[0], sum(X.shape)
        self.indptr = np.concatenate([X.indptr, X.indptr[-1] + Xt.indptr[1:].astype(np.int64)])
        self.indices = ends_with_zeros(np.concatenate([X.indices + np.int32(self.n_users), Xt.indices]))
        # A node without neighbours has scale 1, so that its own row stays finite.
        self.scale = torch.from_numpy(np.maximum(np.diff(self.indptr), 1) ** -0.5)[:, None]
        self._scales: dict[tuple[torch.dtype, bool], Tensor] = {}
        self._matrices: dict[tuple[torch.device, torch.dtype, bool], tuple[Tensor, Tensor]] = {}

    def shared(self, device: torch.device) -> bool:
        """Whether several workers share the rows, as they do with the kernel."""
        return self.exchange.size > 1 and compiled(device)

    def _own(self, begin: int, end: int) -> tuple[int, int, int]:
        """The first, the end and the distance of this worker's rows among nodes `begin` to `end`, all users or all items."""
        rank, size = self.exchange.rank, self.exchange.size
        row = begin if begin < self.n_users else begin - self.n_users
        return begin + (rank - row) % size, end, size

    def by_rows(self, weights: tuple[float, ...], U: Tensor, V: Tensor, scaled: bool = True) -> tuple[Tensor, Tensor]:
        """The polynomial by the kernel, on the CPU. One thread writes each row: same bits for any number of threads.

        Of rows that are shared, those of the other workers are 0.
        """
        if (U.dtype, scaled) not in self._scales:
            self._scales[U.dtype, scaled] = (self.scale if scaled else torch.ones_like(self.scale)).to(U.dtype)
        scale = self._scales[U.dtype, scaled]
        rows = scale.numpy()[:, 0]
        empty = torch.empty_like if self.exchange.size == 1 else torch.zeros_like
        out = empty(U), empty(V)
        h, spare = (empty_table(self.n_nodes, U.shape[1], rows.dtype) for _ in range(2))
        blocks = self.blocks(U.shape[1])
        whole, own = [(*block, 1) for block in blocks], [self._own(*block) for block in blocks]
        E, numbers = [(tensor.numpy(),) for tensor in (U, V)], [rows.dtype.type(weight) for weight in weights]
        self.over(whole, first_rows, E, rows, numbers[-1], h)
        given = self.indptr, self.indices, rows
        for weight in numbers[-2:0:-1]:
            self.over(own, next_rows, E, *given, weight, h, spare)
            target = torch.from_numpy(spare)
            self.exchange.complete((target[: self.n_users], target[self.n_users :]))
            h, spare = spare, h
        sides = [(*side, tensor.numpy()) for side, tensor in zip(E, out, strict=True)]
        self.over(own, last_rows, sides, *given, numbers[0], h)
        return out

    def blocks(self, width: int) -> list[tuple[int, int]]:
        """Ranges of nodes for the threads of the fit, users or items only, where a node reads its neighbours' rows of `width`
        numbers, and reads and writes its own.
        """
        return even_blocks(width * (self.indptr + 2 * np.arange(self.n_nodes + 1)), self.n_users)

    def over(
        self, blocks: Sequence[tuple[int, ...]], kernel: Callable[..., None], sides: Sequence[Any], *arguments: Any
    ) -> None:
        """Call kernel(*block, offset, *side, *arguments) for blocks of users and of items, whose own arguments `sides` has."""
        offsets = 0, self.n_users

        def call(*block: int) -> None:
            side = int(block[0] >= self.n_users)
            kernel(*block, offsets[side], *sides[side], *arguments)

        over(blocks, call)

    def by_matrix(self, weights: tuple[float, ...], U: Tensor, V: Tensor, scaled: bool = True) -> tuple[Tensor, Tensor]:
        """The polynomial by products with the sparse matrices R and Rᵀ, or X and Xᵀ, on any device.

        CSR, since a product with a COO matrix converts it each time.
        """
        key = U.device, U.dtype, scaled
        if key not in self._matrices:
            self._matrices[key] = self._sides(*key)
        R, Rt = self._matrices[key]
        users, items, factor = U, V, weights[-1]
        for weight in reversed(weights[:-1]):
            sums = [torch.addmm(own, *product, beta=weight, alpha=factor) for own, *product in ((U, R, items), (V, Rt, users))]
            (users, items), factor = sums, 1.0
        return users, items

    def _sides(self, device: torch.device, dtype: torch.dtype, scaled: bool) -> tuple[Tensor, Tensor]:
        """The neighbours of users and those of items, with their weights."""
        of_user, of_item = self.scale[: self.n_users, 0].numpy(), self.scale[self.n_users :, 0].numpy()
        end, stop = self.indptr[self.n_users], self.indptr[-1]
        users = self.indptr[: self.n_users + 1], self.indices[:end] - np.int32(self.n_users), of_user, of_item
        items = self.indptr[self.n_users :] - end, self.indices[end:stop], of_item, of_user
        sides = []
        for indptr, ends, own, others in (users, items):
            values = np.repeat(own, np.diff(indptr)) * others[ends] if scaled else np.ones(len(ends))
            arrays = (torch.from_numpy(array) for array in (indptr.astype(ends.dtype), ends, values))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
                matrix = torch.sparse_csr_tensor(*arrays, (len(own), len(others)), check_invariants=True)
            sides.append(matrix.to(device, dtype))
        return sides[0], sides[1]
