"""Random vectors of a given length in the orthants of given ones, added to them in one pass.

    v + ε sign(v) ⊙ Δ/|Δ|,    Δ uniform on (0, 1), independent for each row and number

The numbers are a hash of a seed, the row and the place in it, so that the bits do not depend on the number of threads, and no
generator's state holds them back. The hash is the 32-bit finaliser "lowbias32" of Chris Wellons, applied twice with a key of
64 bits per row, by `core/splitmix.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.core.splitmix import bits
from rankbench.kernels.parallel import in_parallel
from rankbench.kernels.torch_bits import shifted, torch_bits

_32_BITS = 0xFFFFFFFF


def with_noise(vectors: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """Add noise of `length` to each row of `vectors` (n, d). The derivative of the sign is 0.

    Each call takes one number from the generator.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return _Noise.apply(vectors, length, seed)


class _Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vectors: Tensor, length: float, seed: int) -> Tensor:
        given = vectors.detach()
        if not compiled(vectors.device):
            delta = _uniform(given, seed)
            return given + given.sign() * delta * (length / torch.linalg.vector_norm(delta, dim=1, keepdim=True))
        rows = given.contiguous().numpy()
        out = np.empty_like(rows)
        in_parallel(_add, len(rows), rows.size, rows, rows.dtype.type(length), np.uint64(seed), out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        return grad, None, None


def _uniform(like: Tensor, seed: int) -> Tensor:
    """The numbers Δ of the kernel by PyTorch, whose integers have a sign."""
    key = torch_bits(seed, torch.ones_like(like[:, 0], dtype=torch.int64).cumsum(0))[:, None]
    x = torch.ones_like(like, dtype=torch.int64).cumsum(1) - 1
    for part in (key & _32_BITS, shifted(key, 32)):
        x = x ^ part
        x = (x ^ x >> 16) * 0x7FEB352D & _32_BITS
        x = (x ^ x >> 15) * 0x846CA68B & _32_BITS
        x = x ^ x >> 16
    return ((x >> 9).to(like.dtype) + 0.5) * 2.0**-23


@numba.njit(nogil=True, cache=True, inline="always")
def _mixed(x):
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


# `reassoc` lets the sum of squares be one of vectors, whose order the compiler fixes.
@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"}, error_model="numpy")
def add_noise(given, length, key, result):
    """Set the row `result` to the row `given` with noise of `length` that `key`, uint64, determines."""
    n = len(given)
    unit, half, zero = given.dtype.type(2.0**-23), given.dtype.type(0.5), given.dtype.type(0)
    low, high = np.uint32(key), np.uint32(key >> np.uint64(32))
    square = zero
    for k in range(n):
        x = _mixed(np.uint32(_mixed(np.uint32(np.uint32(k) ^ low)) ^ high))
        # 23 bits and a half: exact in float32, and never 0.
        delta = (given.dtype.type(np.int32(x >> np.uint32(9))) + half) * unit
        square += delta * delta
        result[k] = delta
    scale = length / np.sqrt(square)
    for k in range(n):
        v = given[k]
        step = scale * result[k]
        result[k] = v + (step if v > zero else (-step if v < zero else zero * v))


@numba.njit(nogil=True, cache=True)
def _add(rows, length, seed, out, start, stop):
    for row in range(start, stop):
        add_noise(rows[row], length, bits(seed, row), out[row])
