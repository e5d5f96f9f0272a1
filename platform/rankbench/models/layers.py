"""What encoders with weights share: weights that start by the encoder's generator, and dropout that it draws."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn


def xavier(inputs: int, outputs: int, generator: Generator, like: Tensor, copies: int = 1) -> nn.Parameter:
    """A parameter (inputs, copies · outputs) of the dtype of `like`: uniform on ±√(6/(inputs + outputs)).

    (Glorot and Bengio, AISTATS 2010, Eq. 16.) `generator` draws in double precision, so that fits in float32 and float64 start
    from the same numbers.
    """
    bound = math.sqrt(6 / (inputs + outputs))
    drawn = torch.rand(inputs, copies * outputs, generator=generator, dtype=torch.float64)
    return nn.Parameter(((2 * drawn - 1) * bound).to(like.dtype))


def linear(width: int, generator: Generator, like: Tensor, bias: bool = True) -> nn.Linear:
    """A layer W x + b of `width` numbers; b starts as 0."""
    layer = nn.Linear(width, width, bias=bias, dtype=like.dtype)
    layer.weight = xavier(width, width, generator, like)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def dropout(vectors: Tensor, rate: float, generator: Generator) -> Tensor:
    """Set a share `rate` of the numbers to 0 and divide the others by 1 − rate."""
    if not rate:
        return vectors
    kept = torch.rand(vectors.shape, generator=generator, dtype=torch.float32) >= rate
    return vectors * (kept.to(vectors.device, vectors.dtype) / (1 - rate))
