"""PyTorch devices: a check that a device is usable, a share of one, and the matrix inverse of closed forms on a device."""

from __future__ import annotations

import re

import numpy as np
import torch

from rankbench.core.errors import ConfigError, StorageError, first_line, require
from rankbench.solvers.inverse.linalg import not_positive_definite


def require_device(device: str) -> None:
    """Raise ConfigError unless PyTorch can compute on `device`: cpu, cuda, or one of several, as cuda:1."""
    require(re.fullmatch(r"(cpu|cuda)(:\d+)?", device) is not None, f"device {device}: expected cpu, cuda or cuda:N")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {device}: {first_line(error)}") from None


def n_gpus() -> int:
    return torch.cuda.device_count()


def keep_to_share_of_gpu(share: float) -> None:
    """Bound the memory that the fits of this process take of its GPU to `share` of it: one that needs more ends with a message
    of its own, where it would else take the memory of fits that share the GPU.
    """
    torch.cuda.set_per_process_memory_fraction(share)


def spd_inverse_on_(A: np.ndarray, device: str) -> np.ndarray:
    """As `linalg.spd_inverse_`, computed on `device` in the matrix's own precision, with memory for two matrices there.

    Raises StorageError if the memory of the device does not suffice.
    """
    try:
        L, info = torch.linalg.cholesky_ex(torch.from_numpy(A).to(device))
        if row := int(info):
            raise not_positive_definite(row - 1, len(A), A.dtype)
        torch.from_numpy(A).copy_(torch.cholesky_inverse(L))
    except torch.cuda.OutOfMemoryError:
        raise StorageError(f"device {device}: two matrices of {A.nbytes / 1e9:.1f} GB do not fit") from None
    return A
