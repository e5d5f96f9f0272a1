"""Subnormal numbers count as zero while a model is trained.

Numbers below 1.2e-38 in float32, and below 2.2e-308 in float64, have fewer digits, and many processors compute with them in
microcode, a hundred times slower. Gradients become that small where a loss saturates: with long vectors, epochs of LLPAUC took
ten times as long (`benchmarks/subnormals.py`). No other number of a training run changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def flushed() -> Iterator[None]:
    """Within the block, this thread and the threads that it starts compute with zeros instead of subnormal numbers.

    The thread's setting is restored after the block. On processors without such a setting this does nothing.
    """
    before = bool(np.float32(1e-40) * np.float32(1) == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
