"""The random bits of `core/splitmix.py` by PyTorch, whose integers of 64 bits have a sign."""

from __future__ import annotations

from torch import Tensor


def torch_bits(key: int, number: Tensor) -> Tensor:
    """Return the 64 bits of the positions number - 1, int64 with wrapping products, on the device of `number` (int64)."""
    z = number * signed(0x9E3779B97F4A7C15) + signed(key)
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def shifted(z: Tensor, by: int) -> Tensor:
    """Return z shifted right with zeros from the left, where int64 has its sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def signed(value: int) -> int:
    """Return the int64 with the bits of a uint64."""
    return value - (1 << 64) if value >= 1 << 63 else value
