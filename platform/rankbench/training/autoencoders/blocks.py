"""MultiVAE's network on the CPU: loss and gradients written out, in blocks of items, with the same bits for any threads.

Nearly all of the time goes into three products with P₂. They are computed in blocks of `ITEMS` items, each by one thread. The
exponentials and the slopes of a block are computed in place while it is in the cache, and a sum over all blocks adds them in
their order. With precision=bfloat16, these three products read and write 16 bits, and all else stays as it is. The input layer
adds the rows of Q₁ that a user's items select, where a product with the dense input would take as long as one with P₂.
`network.Network` computes the same by autograd.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rankbench.core.compiler import numba
from rankbench.fitting.checkpoints import part_of, prefixed
from rankbench.kernels.neighbours import Precision
from rankbench.kernels.parallel import in_parallel
from rankbench.training.adam import RowAdam
from rankbench.training.autoencoders.network import Batch, Weights
from rankbench.training.table_adam import TableAdam

ITEMS = 2048  # items of a block


def _quiet() -> np.errstate:
    """No warnings of overflow, because the caller refuses a loss that is not finite. NumPy keeps this setting per thread."""
    return np.errstate(over="ignore", invalid="ignore")


class BlockNetwork:
    """The weights, which are changed in place, with dense Adam."""

    def __init__(self, weights: Weights, learning_rate: float, lam: float, precision: Precision = "float32"):
        self._weights, self.learning_rate, self.precision = weights, learning_rate, precision
        self.adam = {name: _optimizer(name, array, lam) for name, array in weights.items()}

    def step(self, batch: Batch) -> float:
        """Update all weights. Returns the sum of the users' losses, without λ."""
        whole = not self.adam["Q1"].moves_idle_rows  # with λ, every row of Q₁ has a gradient
        seen = np.arange(len(self._weights["Q1"])) if whole else np.unique(batch.items[batch.values != 0])
        self.adam["Q1"].read(seen)
        with _quiet():
            loss, gradients = loss_and_gradients(self._weights, batch, seen, self.precision)
        for name, gradient in gradients.items():
            adam = self.adam[name]
            rows = seen if name == "Q1" else np.arange(len(adam.table))
            by_row = gradient if gradient.ndim == 2 else gradient[None]  # a vector is one row
            adam.step(torch.from_numpy(rows), torch.from_numpy(by_row), self.learning_rate)
        return loss

    def weights(self) -> Weights:
        """The weights after the last step."""
        return self._weights | {"Q1": self.adam["Q1"].settled().numpy()}

    def arrays(self) -> dict[str, np.ndarray]:
        return prefixed({"weights": self._weights} | {f"adam/{name}": adam.arrays() for name, adam in self.adam.items()})

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in self._weights.items():
            array[...] = arrays[f"weights/{name}"]
            self.adam[name].restore(part_of(arrays, f"adam/{name}/"))


def _optimizer(name: str, array: np.ndarray, lam: float) -> RowAdam:
    table = torch.from_numpy(array if array.ndim == 2 else array[None])  # shares the memory of the array
    if name == "Q1" and not lam:
        return TableAdam(table)  # a step uses the rows of the batch's items only
    return RowAdam(table, 2 * lam if array.ndim == 2 else 0.0)  # the gradient of λ ‖W‖² is 2λW


def loss_and_gradients(w: Weights, batch: Batch, seen: np.ndarray, precision: Precision = "float32") -> tuple[float, Weights]:
    """Return the sum of the users' losses, without λ, and the gradients of their mean.

    The gradient of Q1, (len(seen), h), is that of the items `seen`, sorted and unique int64, which contain those that the
    encoder sees. All other gradients have the shape of the weights.
    """
    indptr, n_users = batch.indptr, len(batch.indptr) - 1
    width = w["Q1"].shape[1]
    h = np.empty((n_users, width), w["Q1"].dtype)
    in_parallel(_add_rows, n_users, len(batch.items) * width, indptr, batch.items, batch.values, w["Q1"], h)
    h = np.tanh(h + w["q1"])
    mean, log_variance = np.split(h @ w["Q2"] + w["q2"], 2, axis=1)
    deviation = np.exp(log_variance / 2)
    z = mean + batch.noise * deviation
    g = np.tanh(z @ w["P1"] + w["p1"])
    negative, d_g, d_P2, d_p2 = _likelihood(g, w["P2"], w["p2"], batch, precision)
    divergence = np.sum(deviation**2 + mean**2 - 1 - log_variance, dtype=np.float64) / 2

    d_g *= 1 - g**2
    d_z = d_g @ w["P1"].T
    rate = w["q1"].dtype.type(batch.beta / n_users)
    d_mean = d_z + rate * mean
    d_log_variance = (d_z * batch.noise * deviation + rate * (deviation**2 - 1)) / 2
    d_both = np.concatenate([d_mean, d_log_variance], axis=1)
    d_h = (d_both @ w["Q2"].T) * (1 - h**2)
    gradients = {
        "Q1": _input_gradient(batch, seen, d_h),
        "q1": d_h.sum(axis=0),
        "Q2": h.T @ d_both,
        "q2": d_both.sum(axis=0),
        "P1": z.T @ d_g,
        "p1": d_g.sum(axis=0),
        "P2": d_P2,
        "p2": d_p2,
    }
    return float(negative + batch.beta * divergence), gradients


@dataclass(frozen=True)
class _Blocks:
    """Blocks of items from starts[k] to starts[k + 1], and the entries of the batch sorted by item: those of block k are at
    ends[k] to ends[k + 1] in `users` and `items`.
    """

    starts: np.ndarray
    users: np.ndarray
    items: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, batch: Batch, n_items: int) -> _Blocks:
        starts = np.append(np.arange(0, n_items, ITEMS), n_items)
        order = np.argsort(batch.items, kind="stable")
        items = batch.items[order]
        return cls(starts, batch.users[order], items, np.searchsorted(items, starts))

    def of_block(self, k: int) -> tuple[slice, tuple[np.ndarray, np.ndarray]]:
        """Return the items of a block, and the positions of the batch's entries in the matrix of its users and items."""
        part = slice(self.ends[k], self.ends[k + 1])
        return slice(self.starts[k], self.starts[k + 1]), (self.users[part], self.items[part] - self.starts[k])


def _likelihood(
    g: np.ndarray, P2: np.ndarray, p2: np.ndarray, batch: Batch, precision: Precision
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the negative log-likelihood of all users, and the gradients of its mean in g, P2 and p2.

    softmax(f) of a block is its exponentials relative to the largest score of a user in the block, times one number per user,
    which is known once all blocks have their sums. So every exponential is computed once.
    """
    blocks, n_users, dtype = _Blocks.of(batch, len(P2)), len(g), g.dtype
    n_blocks = len(blocks.starts) - 1
    f = np.empty(n_users * len(P2), dtype)  # block after block, so that each is contiguous
    most, totals, own = (np.empty(shape) for shape in ((n_blocks, n_users), (n_blocks, n_users), n_blocks))
    d_P2, d_p2, parts = np.empty_like(P2), np.empty_like(p2), np.empty((n_blocks, *g.shape), dtype)
    codes = _factor(g, precision)

    def scores(items: slice) -> np.ndarray:
        return f[n_users * items.start : n_users * items.stop].reshape(n_users, -1)

    def forward(start: int, stop: int) -> None:
        with _quiet():
            for k in range(start, stop):
                items, entries = blocks.of_block(k)
                block = _product(codes, _factor(P2[items], precision).T, scores(items))
                block += p2[items]
                own[k] = block[entries].sum(dtype=np.float64)
                largest = block.max(axis=1)
                block -= largest[:, None]
                np.exp(block, out=block)
                most[k], totals[k] = largest, block.sum(axis=1)

    def backward(start: int, stop: int) -> None:
        with _quiet():
            for k in range(start, stop):
                items, entries = blocks.of_block(k)
                slopes = scores(items)
                slopes *= factors[k][:, None]
                slopes[entries] -= dtype.type(1 / n_users)
                slopes.sum(axis=0, out=d_p2[items])
                factor = _factor(slopes, precision)
                _product(factor.T, codes, d_P2[items])
                _product(factor, _factor(P2[items], precision), parts[k])

    in_parallel(forward, n_blocks, f.size)
    largest = most.max(axis=0)
    normaliser = largest + np.log((totals * np.exp(most - largest)).sum(axis=0))
    factors = (batch.counts / n_users * np.exp(most - normaliser)).astype(dtype)
    in_parallel(backward, n_blocks, f.size)
    return float(batch.counts @ normaliser - own.sum()), parts.sum(axis=0), d_P2, d_p2


def _factor(array: np.ndarray, precision: Precision) -> np.ndarray | torch.Tensor:
    """Return the array as a factor of a product of this precision. NumPy has no bfloat16, so PyTorch multiplies it."""
    return torch.from_numpy(array).bfloat16() if precision == "bfloat16" else array


def _product(left: np.ndarray | torch.Tensor, right: np.ndarray | torch.Tensor, out: np.ndarray) -> np.ndarray:
    """Write the product of two factors into `out` and return it."""
    if isinstance(left, torch.Tensor):
        torch.from_numpy(out).copy_(left @ right)
        return out
    return np.matmul(left, right, out=out)


def _input_gradient(batch: Batch, seen: np.ndarray, d_h: np.ndarray) -> np.ndarray:
    """Return the gradient of the rows `seen` of Q₁, from that of the sums of rows."""
    kept = np.flatnonzero(batch.values)
    kept = kept[np.argsort(batch.items[kept], kind="stable")]
    users, values = batch.users[kept], batch.values[kept]
    ends = np.append(np.searchsorted(batch.items[kept], seen), len(kept))
    out = np.empty((len(seen), d_h.shape[1]), d_h.dtype)
    in_parallel(_add_rows, len(seen), len(kept) * d_h.shape[1], ends, users, values, d_h, out)
    return out


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_rows(indptr, indices, values, table, out, start, stop):
    """out[r] = Σ_s values[s] table[indices[s]] over the entries s of row r, in their order."""
    for r in range(start, stop):
        row = out[r]
        row[:] = 0
        for s in range(indptr[r], indptr[r + 1]):
            value, source = values[s], table[indices[s]]
            if value != 0:
                for t in range(len(row)):
                    row[t] += value * source[t]
