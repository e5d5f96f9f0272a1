"""Random items by a key and their positions, so that neither threads nor their order change a draw.

On the processor, compiled loops draw; with another `device`, PyTorch's operations draw there, where a loop would wait for the
host. `uniform` and `by_weight` draw the same items either way. `OtherItems` has no rejections on a device, which would need to
know on the host whether any is left: a number r below the count of the user's other items is drawn, and then the r-th of these
items is found, so its items differ, but not their distribution.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.compiler import numba
from rankbench.core.rng import stream
from rankbench.core.splitmix import below, bits
from rankbench.kernels.parallel import in_parallel
from rankbench.kernels.torch_bits import shifted, torch_bits
from rankbench.kernels.transfer import on_device

Shape = tuple[int, int]


def uniform(key: np.uint64, n_items: int, shape: Shape, device: torch.device | None = None) -> np.ndarray | Tensor:
    """Items with equal probability, int64 of `shape`."""
    if device:
        return _below(_bits(key, shape[0] * shape[1], device), n_items).view(shape)
    drawn = np.empty(shape, np.int64)
    in_parallel(_uniform, drawn.size, drawn.size, key, n_items, drawn.reshape(-1))
    return drawn


def by_weight(key: np.uint64, cumulative: np.ndarray | Tensor, shape: Shape) -> np.ndarray | Tensor:
    """Items with the probabilities that add up to `cumulative` (n_items,) float64; a tensor is on the device that draws."""
    if isinstance(cumulative, Tensor):
        share = shifted(_bits(key, shape[0] * shape[1], cumulative.device), 11).double() * 2.0**-53
        return torch.searchsorted(cumulative, share, right=True).clamp_(max=len(cumulative) - 1).view(shape)
    drawn = np.empty(shape, np.int64)
    in_parallel(_by_weight, drawn.size, drawn.size, key, cumulative, drawn.reshape(-1))
    return drawn


class OtherItems:
    """Draws items that users of X (n_users, n_items), 0/1 CSR with sorted columns, have no interaction with."""

    def __init__(self, X: sp.csr_array, device: torch.device | None = None):
        self.X, self.n_items, self.device = X, X.shape[1], device
        if device:
            row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            # For the i-th item of a user: the number of other items before it. Users follow one another: all keys are sorted.
            before = X.indices - (np.arange(X.nnz) - np.asarray(X.indptr)[row])
            self.keys = torch.from_numpy(row * self.n_items + before).to(device)
            self.start = torch.from_numpy(np.asarray(X.indptr, np.int64)).to(device)

    def draw(self, key: np.uint64, users: np.ndarray | Tensor, n: int) -> np.ndarray | Tensor:
        """n items for each of `users` (B,) int64, (B, n)."""
        if self.device:
            return self._there(key, on_device(users, self.device), n)
        drawn = np.empty((len(users), n), np.int64)
        given = key, self.n_items, users, self.X.indptr, self.X.indices, drawn
        in_parallel(_uniform_other, len(users), drawn.size, *given)
        return drawn

    def _there(self, key: np.uint64, users: Tensor, n: int) -> Tensor:
        start, stop = self.start[users], self.start[users + 1]
        random = _bits(key, len(users) * n, users.device).view(len(users), n)
        number = _below(random, (self.n_items - (stop - start))[:, None])
        own_before = torch.searchsorted(self.keys, users[:, None] * self.n_items + number, right=True) - start[:, None]
        return number + own_before

    def draw_one(self, key: np.uint64, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """An item for each of `users` (t,), whose draws have the numbers `positions` (t,)."""
        drawn = np.empty(len(users), np.int64)
        given = key, self.n_items, users, self.X.indptr, self.X.indices, positions, drawn
        in_parallel(_one_other, len(users), len(users), *given)
        return drawn


def drawn_positives(seed: int, epoch: int, batch: int, X: sp.csr_array, users: np.ndarray, m: int) -> np.ndarray:
    """Draw m of each user's own items, uniformly and with replacement, int64 (B, m)."""
    key = stream(seed, "extra positives", epoch, batch).integers(0, 2**63, dtype=np.uint64)
    drawn = np.empty((len(users), m), np.int64)
    in_parallel(_own, len(users), drawn.size, key, users, X.indptr, X.indices, drawn)
    return drawn


@numba.njit(nogil=True, cache=True)
def _uniform(key, n_items, out, start, stop):
    for s in range(start, stop):
        out[s] = below(bits(key, s), n_items)


@numba.njit(nogil=True, cache=True)
def _by_weight(key, cumulative, out, start, stop):
    for s in range(start, stop):
        share = (bits(key, s) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        out[s] = min(np.searchsorted(cumulative, share, side="right"), len(cumulative) - 1)


@numba.njit(nogil=True, cache=True)
def _own(key, users, indptr, indices, out, start, stop):
    m = out.shape[1]
    for b in range(start, stop):
        first, degree = indptr[users[b]], indptr[users[b] + 1] - indptr[users[b]]
        for k in range(m):
            out[b, k] = indices[first + below(bits(key, b * m + k), degree)]


@numba.njit(nogil=True, cache=True)
def _uniform_other(key, n_items, users, indptr, indices, out, start, stop):
    """Draw items that the user has no interaction with, by rejection; after a rejection, new bits are derived from the last."""
    n = out.shape[1]
    excluded = np.zeros(n_items, np.bool_)
    for b in range(start, stop):
        own_items = indices[indptr[users[b]] : indptr[users[b] + 1]]
        for item in own_items:
            excluded[item] = True
        for k in range(n):
            random = bits(key, b * n + k)
            item = below(random, n_items)
            while excluded[item]:
                random = bits(random, k)
                item = below(random, n_items)
            out[b, k] = item
        for item in own_items:
            excluded[item] = False


@numba.njit(nogil=True, cache=True)
def _one_other(key, n_items, users, indptr, indices, position, out, start, stop):
    for t in range(start, stop):
        own = indices[indptr[users[t]] : indptr[users[t] + 1]]
        random = bits(key, position[t])
        item = below(random, n_items)
        while _is_in(item, own):
            random = bits(random, position[t])
            item = below(random, n_items)
        out[t] = item


@numba.njit(nogil=True, cache=True)
def _is_in(item, ascending):
    at = np.searchsorted(ascending, item)
    return at < len(ascending) and ascending[at] == item


def _bits(key: np.uint64, count: int, device: torch.device) -> Tensor:
    """64 random bits for each position."""
    return torch_bits(int(key), torch.arange(1, count + 1, device=device))


def _below(random: Tensor, n: int | Tensor) -> Tensor:
    """Whole numbers in [0, n), n < 2^31, from the upper 32 bits."""
    return (shifted(random, 32) * n) >> 32
