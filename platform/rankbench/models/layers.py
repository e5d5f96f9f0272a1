"""What encoders with weights share: linear layers that start by the encoder's generator, and dropout that it draws."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn


def weight(n_out: int, n_in: int, generator: Generator, like: Tensor) -> nn.Parameter:
    """A matrix (n_out, n_in) with Xavier's normal start, in the dtype of `like`, on the CPU."""
    noise = torch.randn(n_out, n_in, generator=generator, dtype=torch.float64)
    return nn.Parameter((noise * math.sqrt(2 / (n_in + n_out))).to(like.dtype))


def linear(width: int, generator: Generator, like: Tensor, bias: bool = True) -> nn.Linear:
    """A layer W x + b of `width` numbers; b starts as 0."""
    layer = nn.Linear(width, width, bias=bias, dtype=like.dtype)
    layer.weight = weight(width, width, generator, like)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def dropout(vectors: Tensor, rate: float, generator: Generator) -> Tensor:
    """Set a share `rate` of the numbers to 0 and divide the others by 1 − rate."""
    if not rate:
        return vectors
    kept = torch.rand(vectors.shape, generator=generator, dtype=torch.float32) >= rate
    return vectors * (kept.to(vectors.device, vectors.dtype) / (1 - rate))
