"""The draws of `negatives.py` by PyTorch's operations, on the device that computes the gradient steps.

uniform-all and popularity draw the same items as there. uniform-other has no rejections here, which would need to know on the
host whether any is left: a number r below the count of the user's other items is drawn, and then the r-th of these items is
found, so its items differ from those of `negatives.py`, but not their distribution.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def uniform(key: int, n_items: int, shape: tuple[int, int], device: torch.device) -> Tensor:
    return _below(_bits(key, shape[0] * shape[1], device), n_items).view(shape)


def by_weight(key: int, cumulative: Tensor, shape: tuple[int, int]) -> Tensor:
    """`cumulative` (n_items,) float64: the probabilities of all items up to each one."""
    share = _shifted(_bits(key, shape[0] * shape[1], cumulative.device), 11).double() * 2.0**-53
    return torch.searchsorted(cumulative, share, right=True).clamp_(max=len(cumulative) - 1).view(shape)


class OtherItems:
    """Draws items that users of X (n_users, n_items), 0/1 CSR with sorted columns, have no interaction with."""

    def __init__(self, X: sp.csr_array, device: torch.device):
        n_users, self.n_items = X.shape
        row = np.repeat(np.arange(n_users), np.diff(X.indptr))
        # For the i-th item of a user: the number of other items before it. Users follow one another, so all keys are sorted.
        before = X.indices - (np.arange(X.nnz) - np.asarray(X.indptr)[row])
        self.keys = torch.from_numpy(row * self.n_items + before).to(device)
        self.start = torch.from_numpy(np.asarray(X.indptr, np.int64)).to(device)

    def draw(self, key: int, users: Tensor, n: int) -> Tensor:
        """(B, n) items for users (B,) int64."""
        start, stop = self.start[users], self.start[users + 1]
        bits = _bits(key, len(users) * n, users.device).view(len(users), n)
        number = _below(bits, (self.n_items - (stop - start))[:, None])
        own_before = torch.searchsorted(self.keys, users[:, None] * self.n_items + number, right=True) - start[:, None]
        return number + own_before


def _bits(key: int, count: int, device: torch.device) -> Tensor:
    """64 random bits for each position: SplitMix64, with the wrapping products of int64."""
    position = torch.arange(1, count + 1, device=device)
    z = position * _signed(0x9E3779B97F4A7C15) + _signed(key)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _below(bits: Tensor, n: int | Tensor) -> Tensor:
    """Whole numbers in [0, n), n < 2^31, from the upper 32 bits."""
    return (_shifted(bits, 32) * n) >> 32


def _shifted(z: Tensor, by: int) -> Tensor:
    """z shifted right with zeros from the left, where int64 has its sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
