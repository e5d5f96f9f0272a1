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

from collections.abc import Sequence
from itertools import pairwise

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.fitting.thread_pool import threads_of
from rankbench.models.exchange import Alone, Exchange

BLOCKS = 32  # number of blocks of rows, the same for any number of threads; other threads take over the blocks of a delayed one


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

    exchange: Exchange = Alone()

    def __init__(self, X: sp.csr_array):
        X, Xt = sp.csr_array(X), sp.csr_array(X.T)
        self.n_users, self.n_nodes = X.shape[0], sum(X.shape)
        self.indptr = np.concatenate([X.indptr, X.indptr[-1] + Xt.indptr[1:].astype(np.int64)])
        self.indices = np.concatenate([X.indices + np.int32(self.n_users), Xt.indices]).astype(np.int32)
        # A node without neighbours has scale 1, so that its own row stays finite.
        self.scale = torch.from_numpy(np.maximum(np.diff(self.indptr), 1) ** -0.5)[:, None]
        # The cost of a row: its neighbours, and reading and writing the row itself.
        cost = self.indptr + 2 * np.arange(self.n_nodes + 1)
        cuts = np.searchsorted(cost, np.linspace(0, cost[-1], BLOCKS + 1)).tolist()
        # A block has users or items only, whose owners are counted apart.
        self.blocks = [(begin, end) for begin, end in pairwise(sorted([*cuts, self.n_users])) if begin < end]
        self._scales: dict[tuple[torch.dtype, bool], Tensor] = {}
        self._matrices: dict[tuple[torch.device, torch.dtype, bool], Tensor] = {}

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
        h, spare = (U.new_empty(self.n_nodes, U.shape[1]) for _ in range(2))
        torch.mul(U, weights[-1] * scale[: self.n_users], out=h[: self.n_users])
        torch.mul(V, weights[-1] * scale[self.n_users :], out=h[self.n_users :])
        pool, rows = threads_of(numba.get_num_threads()), scale.numpy()[:, 0]
        empty = torch.empty_like if self.exchange.size == 1 else torch.zeros_like
        out = empty(U), empty(V)
        for layer in reversed(range(len(weights) - 1)):
            last = layer == 0
            target = out if last else (spare[: self.n_users], spare[self.n_users :])
            weight = rows.dtype.type(weights[layer])
            arrays = [tensor.numpy() for tensor in (U, V, h, *target)]

            def step(block, weight=weight, last=last, arrays=arrays):
                _step(*self._own(*block), self.indptr, self.indices, rows, weight, last, *arrays)

            list(pool.map(step, self.blocks))
            if not last:
                self.exchange.complete(target)
            h, spare = spare, h
        return out

    def by_matrix(self, weights: tuple[float, ...], U: Tensor, V: Tensor, scaled: bool = True) -> tuple[Tensor, Tensor]:
        """The polynomial by products with the sparse matrix Â or A, on any device."""
        key = U.device, U.dtype, scaled
        if key not in self._matrices:
            self._matrices[key] = self._matrix(*key)
        E = torch.cat([U, V])
        h = weights[-1] * E
        for weight in reversed(weights[:-1]):
            h = torch.sparse.mm(self._matrices[key], h).add_(E, alpha=weight)
        return h[: self.n_users].clone(), h[self.n_users :].clone()

    def _matrix(self, device: torch.device, dtype: torch.dtype, scaled: bool) -> Tensor:
        indptr, indices = torch.from_numpy(self.indptr), torch.from_numpy(self.indices).long()
        row = torch.repeat_interleave(torch.arange(self.n_nodes), indptr.diff())
        values = self.scale[row, 0] * self.scale[indices, 0] if scaled else torch.ones(len(row), dtype=torch.float64)
        matrix = torch.sparse_coo_tensor(torch.stack([row, indices]), values, (self.n_nodes,) * 2, check_invariants=True)
        return matrix.to(device, dtype).coalesce()


# Of the fast-math rules only `contract` is used: others let the compiler drop a NaN, which must reach the trainer.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _step(begin, end, stride, indptr, indices, scale, weight, last, U, V, h, out_users, out_items):
    """Every `stride`-th row of h̃ ← D^-1/2 weight E + D^-1 Σ h̃ from `begin` to `end`; the last step gives h = D^1/2 h̃."""
    n_users, width = U.shape
    total = np.empty(width, h.dtype)
    for row in range(begin, end, stride):
        total[:] = 0
        s, stop = indptr[row], indptr[row + 1]
        # Four rows are added per read and write of the sum.
        while s + 3 < stop:
            a, b, c, d = h[indices[s]], h[indices[s + 1]], h[indices[s + 2]], h[indices[s + 3]]
            for k in range(width):
                total[k] += (a[k] + b[k]) + (c[k] + d[k])
            s += 4
        while s < stop:
            a = h[indices[s]]
            for k in range(width):
                total[k] += a[k]
            s += 1
        own, out = (U[row], out_users[row]) if row < n_users else (V[row - n_users], out_items[row - n_users])
        given, taken = (weight, scale[row]) if last else (weight * scale[row], scale[row] * scale[row])
        for k in range(width):
            out[k] = given * own[k] + taken * total[k]
