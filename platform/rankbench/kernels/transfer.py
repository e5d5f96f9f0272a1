"""Arrays of the host on a device, without a wait for what the device still computes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def on_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """The array as a tensor on `device`. A copy to a GPU starts from pinned memory: from other memory, PyTorch waits for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else array
    if tensor.device.type == device.type:
        return tensor.to(device)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
