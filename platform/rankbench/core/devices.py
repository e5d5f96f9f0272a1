"""Which code computes on a PyTorch device: the compiled loops of this package, or PyTorch's own operations.

The compiled loops read the memory of the CPU. Every one of them has a counterpart in PyTorch's operations, which runs on any
device and is tested on the CPU, with `_COMPILED` set to False.
"""

from __future__ import annotations

from typing import Protocol

_COMPILED = True


class Device(Protocol):
    @property
    def type(self) -> str: ...


def compiled(device: Device) -> bool:
    """Whether the compiled loops can compute on tensors of `device`."""
    return _COMPILED and device.type == "cpu"
